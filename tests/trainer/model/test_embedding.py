"""The table's gradient is exact for tokens that are seen often, whatever the type of computation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tpujob_trainer.model.embedding import look_up
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape

MESHES = {"one device": MeshShape(), "fsdp 8": MeshShape(fsdp=8), "2 slices, fsdp 2": MeshShape(slice=2, fsdp=2)}
SEEN = 2048


@pytest.mark.parametrize("mesh", MESHES)
def test_token_seen_a_thousand_times_has_its_whole_gradient(mesh: str) -> None:
    shape = MESHES[mesh]
    over = build_mesh(slices=shape.slice, devices=jax.devices()[: np.prod(shape.sizes)], shape=shape)
    table = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    tokens = np.full((8, SEEN // 8), 3, np.int32)
    tokens[0, :2] = [1, 4]

    def total(table: jax.Array) -> jax.Array:
        found = look_up(table, tokens, over, jnp.bfloat16)
        assert found.dtype == jnp.bfloat16
        return jnp.sum(found.astype(jnp.float32) * 0.01)

    told = np.repeat(np.array([[0.0], [1], [0], [SEEN - 2], [1]]) * 0.01, 16, axis=1)
    # 0.01 in bfloat16 is off by 0.1 %, the sum of two slices by 0.4 %; a sum in bfloat16 by more than 80 %.
    np.testing.assert_allclose(jax.jit(jax.grad(total))(table), told, rtol=0.006)


@pytest.mark.parametrize("mesh", MESHES)
def test_rows_of_the_table_are_found(mesh: str) -> None:
    shape = MESHES[mesh]
    over = build_mesh(slices=shape.slice, devices=jax.devices()[: np.prod(shape.sizes)], shape=shape)
    table = np.arange(5 * 16, dtype=np.float32).reshape(5, 16)
    tokens = np.arange(8 * 4, dtype=np.int32).reshape(8, 4) % 5
    np.testing.assert_array_equal(jax.jit(lambda t: look_up(t, tokens, over, jnp.float32))(table), table[tokens])
