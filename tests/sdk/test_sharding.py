"""FSDP in a loop of one's own: which dimension is divided, what each device keeps, the same values as before."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tests.harness.processes import start
from tpujob_contract.batch_rows import divided_dimension
from tpujob_sdk.sharding import fsdp_shardings, placed


@pytest.mark.parametrize(
    ("shape", "parts", "dimension"),
    [
        ((), 4, None),
        ((3,), 4, None),
        ((8,), 4, 0),
        ((8, 64), 4, 1),
        ((64, 8), 4, 0),
        ((8, 8), 4, 0),
        ((6, 64, 12), 4, 1),
        ((7, 6), 4, None),
        ((0, 8), 4, 1),
        ((5,), 1, 0),
    ],
)
def test_the_longest_dimension_that_divides_is_divided(
    shape: tuple[int, ...], parts: int, dimension: int | None
) -> None:
    assert divided_dimension(shape, parts) == dimension


def test_shapes_and_arrays_are_divided_alike() -> None:
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    arrays = {"a": np.zeros((3, 8 * mesh.size)), "b": np.int32(3)}
    shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, arrays))
    found = fsdp_shardings(arrays, mesh)
    assert found == fsdp_shardings(shapes, mesh)
    assert found["a"].spec == PartitionSpec(None, ("data",))
    assert found["b"].spec == PartitionSpec()
    assert np.asarray(placed(arrays["a"], found["a"])).tolist() == np.asarray(arrays["a"]).tolist()


def test_random_keys_are_placed_as_other_arrays() -> None:
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    keys = jax.random.split(jax.random.key(3, impl="rbg"), 8 * mesh.size)
    found = placed(keys, fsdp_shardings(keys, mesh))
    assert found.dtype == keys.dtype
    assert found.addressable_shards[0].data.shape == (8,)
    assert jax.random.key_data(found).tolist() == jax.random.key_data(keys).tolist()


PROGRAM = """
import jax
import jax.numpy as jnp
import numpy as np

from tpujob_sdk import Job, run


def train(job: Job) -> None:
    whole = {"wide": np.arange(64.0).reshape(2, 32), "odd": np.arange(3.0), "step": np.int32(7)}
    state = job.shard(whole)
    kept = {name: [shard.data.shape for shard in array.addressable_shards] for name, array in state.items()}
    total = jax.jit(lambda tree: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree)))(state)
    made = jax.jit(lambda: jnp.ones((32, 2)), out_shardings=job.shardings(jax.ShapeDtypeStruct((32, 2), "float32")))()
    print("kept", kept, "sum", float(total), "made", made.addressable_shards[0].data.shape, flush=True)
    job.report(step=1)


run(train)
"""


@pytest.mark.processes
def test_each_device_keeps_its_part_over_two_processes(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(PROGRAM)
    run = start(
        tmp_path / "run",
        processes=2,
        devices=2,
        config={},
        program=(str(tmp_path / "loop.py"),),
        checkpoint_dir=None,
        extra={"TPUJOB_CONFIG": ""},
    )
    assert run.wait() == [0, 0], run.explain()
    whole = sum(range(64)) + 3 + 7
    for member in run.members:
        kept = "{'odd': [(3,), (3,)], 'step': [(), ()], 'wide': [(2, 8), (2, 8)]}"
        assert f"kept {kept} sum {whole}.0 made (8, 2)" in member.log, member.log
