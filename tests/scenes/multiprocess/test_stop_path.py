"""SIGTERM where it comes at a bad time: out within the grace period, with code 75, and the last commit as it was.

Under the launcher, which would kill what is still there two seconds before the grace period ends.
"""

import concurrent.futures
import json
import signal
import time

import pytest

from tests.harness import processes
from tests.multiprocess import faults
from tests.multiprocess.faults import LAUNCHED
from tests.multiprocess.storage_proxy import STALL, StorageProxy
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

EVERY = 5
GRACE_SECONDS = 30
"""A tenth of it is for leaving, which a busy machine slows down."""
AT_ONCE_SECONDS = 20
"""Who waits for the grace period to end takes 25: the launcher keeps two, and leaving three."""
LONG_HEARTBEAT = 90
"""So that nobody is missed before the grace period ends."""


class Stopped:
    """How a run ended that was asked to stop."""

    def __init__(self, run, asked):
        self.run = run
        self.codes_of_all: list[int] = []
        for index in asked:
            processes.kill(run[index], signal.SIGTERM)
        begun = time.time()
        self.ended = faults.wait_for_end(run, asked) - begun
        self.codes = [run[index].poll() for index in asked]

    def assert_in_time(self):
        assert self.codes == [75] * len(self.codes), self.run.explain()
        assert self.ended < GRACE_SECONDS, self.run.explain()


FAULTS = {
    "compile": (("long compute", 1, "compile"), [1]),
    "read": (("blocked read", 1, "step"), [0, 1]),
    "frozen": (("SIGSTOP", 1, "step"), [0]),
}
"""What a process is doing, and who is asked to stop then."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, trainer_block):
    """How each of the runs ended. They are played at once: mostly they wait."""
    config = trainer_block(steps=100_000, every_steps=EVERY, heartbeatSeconds=LONG_HEARTBEAT)

    def play(name):
        cell, asked = FAULTS[name]
        folder = tmp_path_factory.mktemp(name)
        mark = folder / "mark"
        with processes.start(
            folder / "logs",
            processes=2,
            devices=1,
            config=config,
            checkpoint_dir=folder / "checkpoints",
            grace_seconds=GRACE_SECONDS,
            startup_seconds=int(faults.BEGIN_SECONDS),
            program=LAUNCHED,
            extra=faults.environment(faults.Cell(*cell), mark),
        ) as run:
            faults.wait_for_strike(run, mark)
            found = Stopped(run, asked)
            if name == "compile":
                found.codes_of_all = run.wait()
            return found

    with concurrent.futures.ThreadPoolExecutor(len(FAULTS)) as pool:
        return {name: pool.submit(play, name) for name in FAULTS}


def test_compile_that_takes_a_minute(stopped):
    found = stopped["compile"].result()
    found.assert_in_time()
    assert found.ended < AT_ONCE_SECONDS
    # It was alone in being asked; the other one hears it, in JAX's barrier.
    assert found.codes_of_all == [75, 75]
    assert "SIGTERM outside the training loop: nothing to save" in found.run[1].termination_message
    assert "ended with process 1 on host" in found.run[0].termination_message


def test_read_that_does_not_return(stopped):
    found = stopped["read"].result()
    found.assert_in_time()
    for member in found.run.members:
        assert "asked to stop (SIGTERM at process" in member.termination_message


def test_peer_that_is_frozen(stopped):
    found = stopped["frozen"].result()
    found.assert_in_time()
    assert "the grace period is over; what was not committed is lost" in found.run[0].termination_message


def test_storage_that_takes_longer_than_the_grace(bucket, tmp_path, trainer_block):
    proxy = StorageProxy(bucket, 2)
    block = trainer_block(steps=100_000, every_steps=EVERY, heartbeatSeconds=LONG_HEARTBEAT)

    def newest_checkpoint():
        """Every object of it, with its content."""
        step = json.loads(bucket.read("slow/latest.json"))["step"]
        return {name: bucket.read(name) for name in bucket.objects(f"slow/steps/{step}/")}

    try:
        with processes.start(
            tmp_path / "run",
            processes=2,
            devices=1,
            config=block,
            checkpoint_dir=f"gs://{bucket.name}/slow",
            grace_seconds=GRACE_SECONDS,
            startup_seconds=int(faults.BEGIN_SECONDS),
            program=LAUNCHED,
            extra_of=proxy.environment,
        ) as run:
            # Of the second commit: what is written after the first one is there then.
            run.wait_for_report("commits", lambda report: (report["committed_step"] or 0) >= 2 * EVERY)
            fault = proxy.fail(STALL)
            wait_for(
                "a write that stalls, and none that is answered",
                lambda: fault.hits and not proxy.on_their_way,
                timeout_seconds=processes.PATIENCE_SECONDS,
                explain=run.explain,
            )
            before = newest_checkpoint()
            Stopped(run, asked=[0, 1]).assert_in_time()
        assert any(name.endswith("/commit_success.txt") for name in before)
        assert newest_checkpoint() == before
        assert json.loads(bucket.read("slow/latest.json"))["step"] >= 2 * EVERY
    finally:
        proxy.close()
