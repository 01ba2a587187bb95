"""Copies on two hosts, each of which is a slice: a killed run goes on from the newest whole copy, and loses no step."""

import re
import shutil
import signal

import pytest

from tests.harness import processes
from tests.multiprocess.attempts import ENDLESS
from tests.multiprocess.test_killed_and_stopped import LOSS_TOLERANCE
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

COPY_EVERY = 2
STEPS_MORE = 6
"""At least so many are trained after a restore, before the next kill."""


class Scenario:
    """Attempts of one run; the copies of each process are in a folder of its own."""

    def __init__(self, folder, trainer_block):
        self.folder, self.count = folder, 0
        self.local = folder / "local"
        checkpoint = {"everySteps": ENDLESS, "local": {"dir": str(self.local), "everySteps": COPY_EVERY}}
        self.config = trainer_block(steps=ENDLESS, every_steps=ENDLESS, checkpoint=checkpoint)
        self.losses: list[dict[int, float]] = []

    def attempt(self):
        run = processes.start(
            self.folder / f"attempt-{self.count}",
            processes=2,
            devices=2,
            config=self.config,
            attempt=self.count,
            extra_of=lambda index: {
                "TPUJOB_SLICES": "2",
                "TPUJOB_SLICE": str(index),
                "TPUJOB_HOST": "0",
                "TPUJOB_HOSTS_PER_SLICE": "1",
            },
        )
        self.count += 1
        return run

    def trained(self, run, least):
        run.wait_for_report("some steps", lambda report: report["step"] >= least)

    def stop(self, run):
        """Ends an attempt such that it commits; the step."""
        for member in run.members:
            processes.kill(member, signal.SIGTERM)
        assert run.wait() == [75, 75], run.explain()
        return self.ended(run)

    def kill_after_copies(self, run, least):
        """Kills both processes once both have a copy of that step or a later one; the newest, and who has it."""

        def copied():
            assert all(member.poll() is None for member in run.members), run.explain()
            return all(max(steps, default=0) >= least for steps in map(copies_of, run.members))

        wait_for("copies of both", copied, timeout_seconds=processes.PATIENCE_SECONDS, explain=run.explain_lateness)
        for member in run.members:
            processes.kill(member)
        run.wait()
        self.ended(run)
        return self.newest()

    def ended(self, run):
        self.losses.append(run[0].losses)
        return max(run[0].losses)

    def newest(self):
        """Step of the newest copy, and on whose hosts it is: either slice has all of the state."""
        steps = [self.steps(index) for index in range(2)]
        newest = max(set.union(*steps))
        having = [index for index in range(2) if newest in steps[index]]
        return newest, "the hosts" if len(having) == 2 else f"the hosts of slice {having[0]}"

    def folder_of(self, index):
        (found,) = self.local.glob(f"*/process-{index}")
        return found

    def steps(self, index):
        return {int(path.stem) for path in self.folder_of(index).glob("*.state")}


def copies_of(member):
    return [int(step) for step in re.findall(r"Wrote the local copy of step (\d+)", member.log)]


def restored_from(run):
    return run.wait_for_report("a restore", lambda report: report["restored_from"] is not None)


def test_run_goes_on_from_the_newest_whole_copy_with_the_same_losses(tmp_path, trainer_block):
    scenario = Scenario(tmp_path, trainer_block)
    with scenario.attempt() as run:
        scenario.trained(run, 3)
        committed = scenario.stop(run)

    # Killed past the last commit: on from the copies of both hosts.
    with scenario.attempt() as run:
        scenario.trained(run, committed + 1)
        copied, where = scenario.kill_after_copies(run, committed + STEPS_MORE)
    with scenario.attempt() as run:
        report = restored_from(run)
        assert (report["restored_from"], report["committed_step"]) == (copied, committed), run.explain()
        assert f"Step {copied} is restored from the copies on {where}\n" in run[0].log
        scenario.kill_after_copies(run, copied + STEPS_MORE)

    # One host's disk is lost: the other slice has all of the state.
    shutil.rmtree(scenario.folder_of(0))
    copied = max(scenario.steps(1))
    with scenario.attempt() as run:
        report = restored_from(run)
        assert (report["restored_from"], report["committed_step"]) == (copied, committed), run.explain()
        assert "from the copies on the hosts of slice 1" in run[0].log
        scenario.kill_after_copies(run, copied + STEPS_MORE)

    # One disk is lost and the other one damaged: on from the checkpoint.
    shutil.rmtree(scenario.folder_of(1))
    for path in scenario.folder_of(0).glob("*.state"):
        data = bytearray(path.read_bytes())
        data[-5] ^= 1
        path.write_bytes(data)
    with scenario.attempt() as run:
        report = restored_from(run)
        assert (report["restored_from"], report["committed_step"]) == (committed, committed), run.explain()
        assert "is not as it was written" in run[0].log
        scenario.trained(run, max(map(max, scenario.losses)) + 1)
        scenario.stop(run)
    # That one trained all steps in a row.
    undisturbed = scenario.losses[-1]
    for found in scenario.losses[1:-1]:
        assert found == pytest.approx({step: undisturbed[step] for step in found}, abs=LOSS_TOLERANCE)
