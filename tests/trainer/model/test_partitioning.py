import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tpujob_trainer.model import partitioning
from tpujob_trainer.model.mesh import build_mesh
from tpujob_trainer.model.partitioning import WHOLE, divided_dim, gather, spec_of


@pytest.mark.parametrize(
    ("axes", "dims", "dim"),
    [
        (("layers", "embed", "heads", "head_dim"), (2, 64, 4, 16), 1),
        (("layers", "mlp", "embed"), (2, 96, 64), 2),
        (("vocab", "embed"), (384, 20), 0),
        (("layers", "embed"), (2, 64), WHOLE),
        (("embed",), (64,), WHOLE),
        (("vocab", "embed"), (21, 20), WHOLE),
    ],
    ids=["embed", "embed behind mlp", "vocab if embed cannot", "stacked vector", "vector", "nothing fits"],
)
def test_one_dimension_is_divided(axes: tuple[str, ...], dims: tuple[int, ...], dim: int) -> None:
    assert divided_dim(axes, dims, 8) == dim


def test_the_specification_names_the_dimension() -> None:
    assert spec_of(1) == PartitionSpec(None, "fsdp")
    assert spec_of(WHOLE) == PartitionSpec()


@pytest.mark.parametrize("packed_bytes", [0, 2**30], ids=["one by one", "packed"])
def test_gathered_weights_are_whole(packed_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioning, "PACKED_BYTES", packed_bytes)
    rng = np.random.default_rng(0)
    tree = {"a": rng.normal(size=(8, 3)), "b": rng.normal(size=(5, 16, 2)), "c": rng.normal(size=(4,))}
    tree = jax.tree.map(np.float32, tree)
    dims = {"a": 0, "b": 1, "c": WHOLE}
    specs = jax.tree.map(spec_of, dims)
    whole = jax.jit(
        jax.shard_map(
            lambda parts: gather(parts, dims, jnp.float32),
            mesh=build_mesh(slices=1),
            in_specs=(specs,),
            out_specs=PartitionSpec(),
            check_vma=False,
        )
    )(tree)
    jax.tree.map(np.testing.assert_array_equal, whole, tree)
