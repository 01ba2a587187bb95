"""Gradients come back as weights are kept, whatever way they take over a slice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tpujob_trainer.model import partitioning
from tpujob_trainer.model.axes import WEIGHT_AXES
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.partitioning import gather

pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices of a line, as a slice of 64 chips and more has several; CPU devices have no places."""
    monkeypatch.setattr(partitioning, "_line", lambda mesh: 2)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_gradient_scattered_side_by_side_is_the_sum(at: int, side_by_side: None) -> None:
    mesh = build_mesh(slices=1)
    kept = PartitionSpec(*(WEIGHT_AXES if dimension == at else None for dimension in range(3)))
    assert partitioning.scattered_by_side(mesh, kept) is not None
    weight = jax.random.normal(jax.random.key(0), (8, 16, 24))
    x = jax.random.normal(jax.random.key(1), (8, 8, 16, 24))
    place = NamedSharding(mesh, kept)

    def total(weight: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(x * gather(weight, mesh, kept, PartitionSpec()) ** 2)

    rows = NamedSharding(mesh, partitioning.ROWS)
    gradient = jax.jit(jax.grad(total), in_shardings=(place, rows), out_shardings=place)(weight, x)
    np.testing.assert_allclose(gradient, 2 * weight * jnp.sum(x, axis=0), rtol=1e-5, atol=1e-5)
