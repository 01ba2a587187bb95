"""Saves one tree, or restores it, on the mesh that the configuration says, and logs its fingerprints.

Configuration: mesh (two numbers, or three with the slices first), save (whether).
"""

import json
import logging
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_contract import ExitCode, read_environment
from tpujob_trainer.checkpoint import ownership
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.checkpoint.retention import Retention, Settings
from tpujob_trainer.distributed import initialize
from tpujob_trainer.distributed.exit import process_exit
from tpujob_trainer.distributed.exit.stop_request import StopRequest

logger = logging.getLogger(__name__)

STEP = 7
LEAVES = {
    "rows": ((16, 24), np.float32, PartitionSpec(("a", "b"), None)),
    "blocks": ((16, 24), np.float32, PartitionSpec("a", "b")),
    "columns": ((3, 16), jnp.bfloat16, PartitionSpec(None, "b")),
    "layers": ((2, 16, 8), np.float32, PartitionSpec(None, "b", "a")),
    "whole": ((5, 3), np.float32, PartitionSpec()),
    "step": ((), np.int32, PartitionSpec()),
    "mask": ((4,), np.bool_, PartitionSpec()),
}


def main(stop: StopRequest) -> int:
    process = read_environment(os.environ)
    assert process.checkpoint_dir is not None
    config = json.loads(process.config or "{}")
    runtime = initialize.start(process, heartbeat_seconds=30, configuration_hash="the same")
    directory = process.checkpoint_dir
    ownership.claim(directory, owner="test/job", adopt=None, runtime=runtime)
    sizes = (1, 1, *config["mesh"])[-3:]
    mesh = jax.make_mesh(sizes, ("slice", "a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 3)
    checkpoints = Checkpoints(
        directory, Settings(retention=Retention(last=3), replica_axis="slice" if sizes[0] > 1 else None), runtime
    )
    if config["save"]:
        found = tree(mesh)
        assert checkpoints.restore(abstract(mesh)) is None
        checkpoints.save(STEP, found)
        assert checkpoints.finish(120)
    else:
        restored = checkpoints.restore(abstract(mesh))
        assert restored is not None
        step, found = restored
        assert step == STEP
        for name, leaf in found.items():
            assert leaf.sharding.is_equivalent_to(abstract(mesh)[name].sharding, leaf.ndim)
    logger.info("fingerprints %s", json.dumps(Fingerprinter()(found).by_leaf))
    checkpoints.close()
    runtime.close()
    return ExitCode.FINISHED


def abstract(mesh: Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    return {
        name: jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
        for name, (shape, dtype, spec) in LEAVES.items()
    }


def tree(mesh: Mesh) -> dict[str, jax.Array]:
    """Arrays of which each process holds its part, from values that all can make."""
    dice = np.random.default_rng(0)
    found = {}
    for name, leaf in abstract(mesh).items():
        values = np.asarray(dice.normal(size=leaf.shape) * 100).astype(leaf.dtype)
        if values.size > 2 and leaf.dtype != np.bool_:
            values.flat[:2] = (-0.0, np.nan)  # the sum of a zero and -0 is another bit pattern
        found[name] = jax.make_array_from_callback(leaf.shape, leaf.sharding, lambda index, v=values: v[index])
    return found


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True)
    logging.getLogger("absl").setLevel(logging.WARNING)
    this = read_environment(os.environ)
    process_exit.run_to_exit(main, this, grace_seconds=this.grace_seconds)
