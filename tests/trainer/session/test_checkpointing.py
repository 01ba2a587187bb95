"""What report and metrics say about saves."""

import json
import resource
import shutil
import time
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from tools.localcluster.waiting import wait_for
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.config.schema import CheckpointConfig, LocalCopiesConfig
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.session.checkpointing import Checkpointing
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.report import Report

LIMIT_SECONDS = 60.0
NOISE = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(1000, 100)), jnp.float32)}


@pytest.fixture
def session(tmp_path):
    report = Report()
    runtime = Runtime(process_id=0, num_processes=1, attempt_id="0.0-x", host="here", coordination=kv_store.alone())
    return SimpleNamespace(
        directory=str(tmp_path),
        runtime=runtime,
        report=report,
        metrics=Metrics(report),
        claim=None,
        stop=StopRequest(grace_seconds=30),
    )


@pytest.fixture
def saves(session):
    config = CheckpointConfig(keep=1, keep_best=1, every_seconds=1000)
    run = SimpleNamespace(checkpoint=config, as_json=lambda: "{}")
    return Checkpointing(run, {"fingerprint": "f"}, session)


def save(saves, step):
    assert saves.checkpoints is not None
    saves.checkpoints.save(step, NOISE)
    return saves.checkpoints.finish(LIMIT_SECONDS)


def value(session, name):
    return session.metrics.registry.get_sample_value(name)


def test_failing_saves_raise_the_alarm_until_one_is_committed(session, saves):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        assert not save(saves, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    facts = session.report.snapshot()
    assert abs(facts["checkpoint_failing_since"] - time.time()) < LIMIT_SECONDS
    assert facts["checkpoint_message"].startswith("the checkpoint of step 1 failed: ")
    assert facts["checkpoint_message"].endswith("once nothing was committed for 3600 s (failAfterSeconds)")
    assert facts["committed_step"] is None
    assert value(session, "tpujob_checkpoint_failures_total") == 1
    assert value(session, "tpujob_checkpoint_failing_since_timestamp_seconds") == facts["checkpoint_failing_since"]
    assert saves.policy.flags().save_seconds > 0

    assert save(saves, 2)
    facts = session.report.snapshot()
    assert (facts["committed_step"], facts["checkpoint_failing_since"], facts["checkpoint_message"]) == (2, None, None)
    assert value(session, "tpujob_checkpoint_failing_since_timestamp_seconds") is None


def test_evaluation_of_a_step_belongs_to_its_checkpoint(session, saves, tmp_path):
    for step, loss in ((1, 2.0), (2, 3.0), (3, 4.0)):
        assert save(saves, step)
        session.report.update(evaluation_step=step, evaluation_loss=loss)
    assert save(saves, 4)
    saves.checkpoints.close()
    assert sorted(path.name for path in (tmp_path / "steps").iterdir()) == ["1", "4"]
    assert json.loads((tmp_path / "metrics" / "1.json").read_text()) == {"evaluation_loss": 2.0}


def test_evaluation_that_was_over_before_the_commit_is_kept_beside_a_later_one(session, saves, tmp_path):
    """Of step 2, too, which is evaluated before anybody sees that step 1 is committed."""
    assert saves.checkpoints.save(1, NOISE)
    for step, loss in ((1, 2.0), (2, 3.0)):
        saves.record_evaluation(step, {"evaluation_loss": loss, "top1": 1 / loss, "odd": float("nan")})
    assert saves.checkpoints.finish(LIMIT_SECONDS)
    saves.checkpoints.close()
    assert json.loads((tmp_path / "metrics" / "1.json").read_text()) == {"evaluation_loss": 2.0, "top1": 0.5}
    assert not (tmp_path / "metrics" / "2.json").exists()
    assert save(saves, 3)
    assert not saves._evaluated, "what is decided is not kept for ever"


def test_run_that_made_a_checkpoint_is_described_in_it(saves, tmp_path):
    assert save(saves, 1)
    stored = layout.metadata_of_newest(tmp_path)
    assert stored is not None
    assert stored["data"] == {"fingerprint": "f"}
    assert stored["processes"] == 1
    assert "orbax-checkpoint" in stored["versions"]


def test_metrics_say_how_old_a_checkpoint_may_become(session, saves):
    assert saves.checkpoints is not None
    assert value(session, "tpujob_checkpoint_interval_seconds") == 1000


def test_without_a_directory_there_is_no_interval(session):
    session.directory = None
    run = SimpleNamespace(checkpoint=CheckpointConfig(), as_json=lambda: "{}")
    Checkpointing(run, {}, session)
    assert value(session, "tpujob_checkpoint_interval_seconds") == 0


def test_local_copies_are_counted_and_dated(session, tmp_path):
    local = tmp_path / "local"
    config = CheckpointConfig(local=LocalCopiesConfig(dir=str(local), every_steps=1))
    run = SimpleNamespace(checkpoint=config, as_json=lambda: "{}")
    saves = Checkpointing(run, {}, session)
    assert value(session, "tpujob_local_copy_timestamp_seconds") == 0
    began = time.time()

    def copied(step, told):
        assert saves.checkpoints is not None
        saves.checkpoints.copy(step, NOISE)
        wait_for(told, lambda: value(session, told) == 1)

    copied(1, "tpujob_local_copies_total")
    wait_for("a date", lambda: value(session, "tpujob_local_copy_timestamp_seconds"))
    assert began - 1 <= value(session, "tpujob_local_copy_timestamp_seconds") <= time.time() + 1
    (folder,) = local.glob("*/process-0")
    shutil.rmtree(folder)
    folder.touch()  # what no file can be written below
    copied(2, "tpujob_local_copy_failures_total")
    assert value(session, "tpujob_local_copies_total") == 1
