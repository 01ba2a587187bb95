"""A checkpoint directory that is taken away under a run of two processes, and a last save that fails at first."""

import functools
import signal
from pathlib import Path

import pytest

from tests.harness import processes
from tests.multiprocess.bucket import Bucket
from tests.multiprocess.storage_proxy import StorageProxy
from tools.localcluster.waiting import wait_for
from tpujob_contract import ExitCode
from tpujob_trainer.checkpoint import layout

pytestmark = pytest.mark.processes

EVERY = 5
SAVE_SECONDS = 10
"""After which a save has failed."""


def wait_for_commit(run, *, after):
    report = run.wait_for_report("a commit", lambda report: (report["committed_step"] or 0) > after)
    return report["committed_step"]


def test_directory_that_is_moved_away_is_made_again_and_stays_the_runs_own(tmp_path, trainer_block):
    directory = tmp_path / "checkpoints"
    block = trainer_block(steps=100_000, every_steps=EVERY)

    def start(name, count=2, attempt=0):
        return processes.start(
            tmp_path / name, processes=count, devices=1, config=block, checkpoint_dir=directory, attempt=attempt
        )

    with start("first") as run:
        step = wait_for_commit(run, after=0)
        directory.rename(tmp_path / "elsewhere")
        wait_for_commit(run, after=step + EVERY)
        for name in ("owner.json", ".lock", "_data.parquet"):
            wait_for(name, (directory / name).exists, explain=run.explain)
        assert (directory / "_data.parquet").read_bytes() == (tmp_path / "elsewhere" / "_data.parquet").read_bytes()
        assert f"Files of this run are gone from {directory}: they are written again" in run[0].log

        second = start("second", count=1)
        assert second.wait() == [ExitCode.CONFIGURATION], second.explain()
        assert f"another run is writing to {directory}" in second[0].termination_message

        processes.kill(run[0], signal.SIGTERM)
        assert run.wait() == [ExitCode.STOPPED] * 2, run.explain()
    newest = layout.committed(directory)[0]
    with start("third", count=1, attempt=1) as run:
        run.wait_for_report("steps", lambda report: report["restored_from"] == newest)


def test_objects_of_a_bucket_that_are_deleted_are_written_again(bucket: Bucket, tmp_path, trainer_block):
    with processes.start(
        tmp_path / "run",
        processes=1,
        devices=1,
        config=trainer_block(steps=100_000, every_steps=EVERY),
        checkpoint_dir=f"gs://{bucket.name}/lost",
        extra=bucket.environment,
    ) as run:
        step = wait_for_commit(run, after=0)
        for name in bucket.objects("lost/"):
            if not name.startswith("lost/steps/"):
                bucket.delete(name)
        wait_for_commit(run, after=step + 2 * EVERY)
        for name in ("owner.json", "lease.json", "_data.parquet"):
            wait_for(name, functools.partial(bucket.objects, f"lost/{name}"), explain=run.explain)
        processes.kill(run[0], signal.SIGTERM)
        assert run.wait() == [ExitCode.STOPPED], run.explain()


def test_last_save_that_fails_is_tried_again(bucket: Bucket, tmp_path: Path, trainer_block):
    proxy = StorageProxy(bucket, 2)
    steps = 8
    block = trainer_block(steps=steps, every_steps=None)
    block["checkpoint"] = {"timeoutSeconds": SAVE_SECONDS}
    fault = proxy.fail(503, lambda request: request.is_write and f"last/steps/{steps}/" in request.name)
    try:
        with processes.start(
            tmp_path / "run",
            processes=2,
            devices=1,
            config=block,
            checkpoint_dir=f"gs://{bucket.name}/last",
            extra_of=proxy.environment,
        ) as run:
            wait_for("a save that failed", lambda: "it is saved again" in run[0].log, explain=run.explain)
            assert fault.hits > 0
            proxy.heal()
            assert run.wait() == [ExitCode.FINISHED] * 2, run.explain()
    finally:
        proxy.close()
    assert bucket.objects(f"last/steps/{steps}/commit_success.txt")
