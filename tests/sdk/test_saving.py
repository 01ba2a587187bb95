"""The end of a loop whose last state may or may not have become a checkpoint; real files, one process."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_sdk import Checkpoints, Job, Options, Place
from tpujob_trainer.checkpoint import checkpoints, ownership
from tpujob_trainer.checkpoint.retention import Retention, Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.report import Report
from tpujob_trainer.values.errors import TrainerError


class Storage(ownership.Claim):
    """Refuses what is written while `is_full`."""

    is_full = False
    refusals = 0

    def confirm(self) -> None:
        if self.is_full or self.refusals > 0:
            self.refusals -= 1
            raise TrainerError("the disk is full")


def made(directory: Path | None) -> tuple[Job, Checkpoints, Storage]:
    runtime = Runtime(process_id=0, num_processes=1, attempt_id="0.0-x", host="here", coordination=kv_store.alone())
    report = Report()
    report.enter("training")
    storage = Storage(str(directory))
    settings = Settings(retention=Retention(last=3), fail_after_seconds=1)
    saver = directory and checkpoints.Checkpoints(str(directory), settings, runtime, claim=storage)
    session: Any = SimpleNamespace(
        stop=StopRequest(grace_seconds=5), runtime=runtime, report=report, metrics=Metrics(report)
    )
    job = Job(session, Place(), Options())
    checkpointing: Any = SimpleNamespace(checkpoints=saver, report=report, stop=session.stop)
    made = Checkpoints(checkpointing, None)
    job._checkpoints.append(made)
    return job, made, storage


@pytest.fixture
def state() -> jax.Array:
    everywhere = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec())
    return jax.device_put(jnp.ones(4), everywhere)


def test_last_state_that_was_saved_ends_the_run_in_order(tmp_path: Path, state: jax.Array) -> None:
    job, checkpoints, _ = made(tmp_path)
    checkpoints.save(1, state)
    checkpoints.save(2, state)
    job.close()
    assert (checkpoints.committed_step, checkpoints.problem) == (2, "")


def test_last_state_that_was_not_saved_fails_the_run(tmp_path: Path, state: jax.Array) -> None:
    job, checkpoints, storage = made(tmp_path)
    checkpoints.save(1, state)
    assert checkpoints.finish()
    storage.is_full = True
    checkpoints.save(2, state)
    with pytest.raises(
        TrainerError, match=r"nothing was committed for .*; the newest checkpoint is step 1; .*: the disk is full"
    ):
        job.close()


def test_last_state_is_saved_again_once_storage_takes_it(tmp_path: Path, state: jax.Array) -> None:
    job, checkpoints, storage = made(tmp_path)
    storage.refusals = 1
    checkpoints.save(2, state)
    job.report(step=2)
    job.close()
    assert (checkpoints.committed_step, checkpoints.problem) == (2, "")


def test_state_that_the_loop_has_left_behind_is_not_held(tmp_path: Path, state: jax.Array) -> None:
    job, checkpoints, _ = made(tmp_path)
    checkpoints.save(2, state)
    job.report(step=2)
    held = [checkpoints._unsettled]
    job.report(step=3)
    held.append(checkpoints._unsettled)
    assert [each is None for each in held] == [False, True]
    job.close()


def test_run_that_was_asked_to_stop_ends_as_stopped_all_the_same(tmp_path: Path, state: jax.Array) -> None:
    job, checkpoints, storage = made(tmp_path)
    storage.is_full = True
    job._session.stop.request()
    checkpoints.save(1, state)
    job.was_stopped = True
    job.close()
    assert "step 1 was not saved" in checkpoints.problem


def test_step_that_an_earlier_attempt_has_saved_counts(tmp_path: Path, state: jax.Array) -> None:
    job, checkpoints, _ = made(tmp_path)
    checkpoints.save(1, state)
    job.close()
    again, checkpoints, _ = made(tmp_path)
    assert not checkpoints.save(1, state)
    again.close()


def test_without_a_directory_there_is_nothing_to_lose(state: jax.Array) -> None:
    job, checkpoints, _ = made(None)
    assert not checkpoints.save(1, state)
    job.close()


def test_time_of_a_save_is_that_of_a_phase_and_not_of_a_step(tmp_path: Path, state: jax.Array) -> None:
    """The watchdog has another limit for it."""
    job, checkpoints, _ = made(tmp_path)
    checkpoints.save(1, state)
    between = job._session.report.snapshot()
    assert (between["phase"], "saving" in between["seconds"]) == ("training", True)
    job.close()
    after = job._session.report.snapshot()
    assert after["phase"] == "training"
    assert after["seconds"]["saving"] > between["seconds"]["saving"]
