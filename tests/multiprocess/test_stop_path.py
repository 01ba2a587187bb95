"""SIGTERM where it comes at a bad time: out within 15 s of grace, with code 75, and the last commit as it was.

Under the launcher, which would kill what is still there two seconds before the grace period ends.
"""

import itertools
import json
import signal
import time

import pytest

from tests.cluster.waiting import wait_for
from tests.multiprocess import faults, processes
from tests.multiprocess.faults import GRACE_SECONDS, LAUNCHED
from tests.multiprocess.storage_proxy import STALL, StorageProxy

pytestmark = pytest.mark.processes

EVERY = 5
LONG_HEARTBEAT = 30
"""So that nobody is missed before the grace period ends."""


class Stopped:
    """How a run ended that was asked to stop."""

    def __init__(self, run, asked):
        self.run = run
        for index in asked:
            processes.kill(run[index], signal.SIGTERM)
        begun = time.time()
        self.ended = faults.wait_for_end(run, asked) - begun
        self.codes = [run[index].poll() for index in asked]

    def assert_in_time(self):
        assert self.codes == [75] * len(self.codes), self.run.explain()
        assert self.ended < GRACE_SECONDS, self.run.explain()


@pytest.fixture
def strike(tmp_path, trainer_block):
    """A function that starts a run with a fault and returns it when the fault is there."""
    number = itertools.count()

    def strike(fault, victim, stage):
        folder = tmp_path / str(next(number))
        mark = folder / "mark"
        run = processes.start(
            folder / "logs",
            processes=2,
            devices=1,
            config=trainer_block(steps=100_000, every_steps=EVERY, heartbeatSeconds=LONG_HEARTBEAT),
            checkpoint_dir=folder / "checkpoints",
            grace_seconds=GRACE_SECONDS,
            startup_seconds=120,
            program=LAUNCHED,
            extra=faults.environment(faults.Cell(fault, victim, stage), mark),
        )
        faults.wait_for_strike(run, mark)
        return run

    return strike


def test_compile_that_takes_a_minute(strike):
    with strike("long compute", 1, "compile") as run:
        stopped = Stopped(run, asked=[1])
        stopped.assert_in_time()
        # It was alone in being asked; the other one hears it, in JAX's barrier.
        assert run.wait(limit_seconds=GRACE_SECONDS) == [75, 75]
    assert stopped.ended < 5
    assert "SIGTERM outside the training loop: nothing to save" in run[1].termination_message
    assert "ended with process 1 on host" in run[0].termination_message


def test_read_that_does_not_return(strike):
    with strike("blocked read", 1, "step") as run:
        Stopped(run, asked=[0, 1]).assert_in_time()
    for member in run.members:
        assert "asked to stop (SIGTERM at process" in member.termination_message


def test_peer_that_is_frozen(strike):
    with strike("SIGSTOP", 1, "step") as run:
        Stopped(run, asked=[0]).assert_in_time()
    assert "the grace period is over; what was not committed is lost" in run[0].termination_message


def test_storage_that_takes_longer_than_the_grace(bucket, tmp_path, trainer_block):
    proxy = StorageProxy(bucket, 2)
    where = f"gs://{bucket.name}/slow"
    block = trainer_block(steps=100_000, every_steps=EVERY, heartbeatSeconds=LONG_HEARTBEAT)

    def start(name):
        return processes.start(
            tmp_path / name,
            processes=2,
            devices=1,
            config=block,
            checkpoint_dir=where,
            grace_seconds=GRACE_SECONDS,
            startup_seconds=120,
            program=LAUNCHED,
            extra_of=proxy.environment,
        )

    try:
        with start("first") as run:
            run.wait_for_report("a commit", lambda report: (report["committed_step"] or 0) >= EVERY)
            fault = proxy.fail(STALL)
            wait_for("a write that stalls", lambda: fault.hits, explain=run.explain)
            Stopped(run, asked=[0, 1]).assert_in_time()
        proxy.heal()
        committed = json.loads(bucket.read("slow/latest.json"))["step"]
        with start("second") as run:
            found = run.wait_for_report("a restore", lambda report: report["restored_from"] is not None)
        assert found["restored_from"] >= committed >= EVERY
    finally:
        proxy.close()
