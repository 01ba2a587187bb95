"""A checkpoint directory that is taken away under a run of two processes."""

import signal

import pytest

from tests.harness import processes
from tools.localcluster.waiting import wait_for
from tpujob_contract import ExitCode
from tpujob_trainer.checkpoint import layout

pytestmark = pytest.mark.processes

EVERY = 5


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
