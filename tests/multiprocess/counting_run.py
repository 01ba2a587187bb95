"""A run with everything but a model: starts, claims, restores, counts and saves.

Configuration: steps, save_every, width (of the arrays), hash, adopt, raise_in (process), limit_seconds (of a save),
wait_seconds (for the save before), fail_after_seconds, step_seconds (at least).
With GATE it begins when that file is there.
"""

import gc
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from tests.multiprocess.pacing import pause
from tools.localcluster.waiting import wait_for
from tpujob_contract import ExitCode, read_environment
from tpujob_trainer.checkpoint import ownership
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.retention import Listener, Retention, Settings
from tpujob_trainer.distributed import initialize
from tpujob_trainer.distributed.exit import process_exit
from tpujob_trainer.distributed.exit.stop_request import StopRequest

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 30
GATE_SECONDS = 600


def refuse(name):
    raise AssertionError(f"a barrier on the devices: {name}")


def main(stop: StopRequest) -> int:
    if gate := os.environ.get("GATE"):
        wait_for("the gate", Path(gate).exists, timeout_seconds=GATE_SECONDS)
    process = read_environment(os.environ)
    assert process.checkpoint_dir is not None
    config = json.loads(process.config or "{}")
    runtime = initialize.start(
        process,
        heartbeat_seconds=HEARTBEAT_SECONDS,
        configuration_hash=config.get("hash", "the same"),
        on_met=stop.joined,
    )
    claim = ownership.claim(process.checkpoint_dir, owner=process.owner, adopt=config.get("adopt"), runtime=runtime)
    multihost_utils.sync_global_devices = refuse
    if sys.version_info < (3, 12, 7):
        # Collecting what a failed upload of gcsfs leaves crashes older versions: python/cpython#77894.
        gc.disable()
    checkpoints = opened(process.checkpoint_dir, config, runtime, claim)
    count(checkpoints, config, runtime, stop)
    logger.info("committed=%s", checkpoints.committed_step)
    checkpoints.close()
    runtime.close()
    claim.close()
    return ExitCode.FINISHED


def opened(directory: str, config: dict[str, Any], runtime: initialize.Runtime, claim: ownership.Claim) -> Checkpoints:
    return Checkpoints(
        directory,
        Settings(
            retention=Retention(last=3),
            limit_seconds=config.get("limit_seconds", 60),
            fail_after_seconds=config.get("fail_after_seconds", 3600),
        ),
        runtime,
        claim=claim,
        listener=Listener(
            saved=lambda step, seconds: logger.info("saved %d blocking %.3f", step, seconds),
            committed=lambda commit, seconds: logger.info("committed %d", commit.step),
            failed=lambda step, why: logger.info("failed %d: %s", step, why),
        ),
    )


def count(checkpoints: Checkpoints, config: dict[str, Any], runtime: initialize.Runtime, stop: StopRequest) -> None:
    """Adds 1 to each number in each step, from where the newest checkpoint is."""
    mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    whole = NamedSharding(mesh, PartitionSpec())
    shardings = {"sharded": NamedSharding(mesh, PartitionSpec("data")), "whole": whole}
    shape = (config.get("width", 16), 2)
    abstract = {name: jax.ShapeDtypeStruct(shape, np.float32, sharding=each) for name, each in shardings.items()}
    plus_one = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    restored = checkpoints.restore(abstract)
    zeros = np.zeros(shape, np.float32)
    step, tree = restored or (
        0,
        {
            name: jax.make_array_from_callback(shape, each, lambda index: zeros[index])
            for name, each in shardings.items()
        },
    )
    logger.info("restored=%s value=%s", restored and restored[0], tree["whole"].addressable_data(0)[0, 0])
    if config.get("raise_in") == runtime.process_id:
        raise ValueError("raised on purpose")
    total = jax.jit(lambda tree: tree["sharded"].sum(), out_shardings=whole)
    first = step
    stop.entered_loop()
    while step < config["steps"]:
        if "step_seconds" in config:
            pause(config["step_seconds"])
        tree = plus_one(tree)
        step += 1
        assert float(total(tree)) == step * zeros.size
        if step == first + 1:
            # All have met in a collective.
            logger.info("counting")
        if step % config["save_every"] == 0:
            checkpoints.save(step, tree, wait_seconds=config.get("wait_seconds"))
        checkpoints.poll()
    checkpoints.finish(120)
    stop.left_loop()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True)
    logging.getLogger("absl").setLevel(logging.WARNING)
    this = read_environment(os.environ)
    process_exit.run_to_exit(main, this, grace_seconds=this.grace_seconds)
