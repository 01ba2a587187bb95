"""A run that is killed, goes on, is stopped, goes on: it trains as if nothing had happened."""

import json
import signal
import time

import pytest

from tests.harness import processes
from tests.multiprocess import attempts
from tests.multiprocess.attempts import ENDLESS, PROCESSES, committed, trained

pytestmark = pytest.mark.processes

EVERY = 10
HEARTBEAT_SECONDS = 150
END_SECONDS = 120.0
"""By then all processes are gone after one was killed: nobody waits for the heartbeat."""
LOSS_TOLERANCE = 2e-4
"""Of losses near 6 that are printed with four decimals; 8 devices in 2 processes and in 1 add in another order."""


class Scenario(attempts.Scenario):
    """What was seen of the attempts."""

    killed_after = 0
    """Step that process 0 had reported as committed when process 1 was killed."""
    killed_at = 0.0

    def __init__(self, folder, config):
        super().__init__(folder, config)
        self.codes_after_kill: list[int] = []
        self.resumed: dict = {}
        self.codes_after_stop: list[int] = []
        self.resumed_again: dict = {}
        self.codes_after_eviction: list[int] = []


@pytest.fixture(scope="module")
def scenario(tmp_path_factory, trainer_block):
    """Attempt 0: process 1 is killed. Attempt 1: process 1 alone is asked to stop. Attempt 2: both are.

    Attempt 3 is another run, in one process, that nothing happens to.
    """
    block = trainer_block(steps=ENDLESS, every_steps=EVERY, heartbeatSeconds=HEARTBEAT_SECONDS)
    scenario = Scenario(tmp_path_factory.mktemp("scenario"), block)
    with scenario.attempt() as run:
        scenario.killed_after = run.wait_for_report("a commit", committed(EVERY))["committed_step"]
        processes.kill(run[1])
        scenario.killed_at = time.monotonic()
        scenario.codes_after_kill = run.wait()
    with scenario.attempt() as run:
        scenario.resumed = run.wait_for_report("progress", lambda report: report["restored_from"] is not None)
        run.wait_for_report("some steps", trained(scenario.resumed["restored_from"] + 3))
        processes.kill(run[1], signal.SIGTERM)
        scenario.codes_after_stop = run.wait()
    with scenario.attempt() as run:
        scenario.resumed_again = run.wait_for_report("a restore", lambda report: report["restored_from"] is not None)
        run.wait_for_report("some steps", trained(scenario.resumed_again["restored_from"] + 3))
        for member in run.members:
            processes.kill(member, signal.SIGTERM)
        scenario.codes_after_eviction = run.wait()
    last = max(step for attempt in scenario.attempts for step in attempt[0].losses)
    with scenario.attempt(count=1, devices=8, checkpoint_dir=scenario.folder / "undisturbed") as run:
        run.wait_for_report("as many steps", trained(last))
        processes.kill(run[0], signal.SIGTERM)
        run.wait()
    return scenario


def test_killed_process_ends_all(scenario):
    # 1 and not 134: JAX's own abort names nobody, and comes later.
    assert scenario.codes_after_kill == [1, 137], scenario.attempts[0].explain()
    gone = [member.ended_at - scenario.killed_at for member in scenario.attempts[0].members]
    assert max(gone) < END_SECONDS


def test_survivor_names_the_lost_process(scenario):
    words, report = scenario.attempts[0][0].termination_message.splitlines()
    assert "lost process 1 on host" in words
    assert "its connection broke" in words
    # Nobody can be asked any more: the last report is there for the operator.
    assert json.loads(report.removeprefix("report: "))["committed_step"] >= scenario.killed_after


def test_next_attempt_goes_on_from_the_last_commit(scenario):
    restored = scenario.resumed["restored_from"]
    assert restored >= scenario.killed_after
    # A save that was passed over is made up for at any later step.
    assert restored % EVERY == 0 or " is not saved: " in scenario.attempts[0][0].log
    assert min(scenario.attempts[1][0].losses) == restored + 1


def test_batches_before_each_restart_are_those_that_were_saved(scenario):
    for attempt, resumed in ((1, scenario.resumed), (2, scenario.resumed_again)):
        told = f"Step {resumed['restored_from']} goes on from the batches it was saved after: digest="
        assert told in scenario.attempts[attempt][0].log


def test_attempt_that_lost_a_process_has_its_exit_code(scenario):
    assert scenario.ending(0)["exit_code"] == 1
    assert "lost process 1" in scenario.ending(0)["message"]


def test_stopping_one_stops_all_at_the_same_step(scenario):
    assert scenario.codes_after_stop == [75] * PROCESSES, scenario.attempts[1].explain()
    last = max(scenario.attempts[1][0].losses)
    assert scenario.ending(1)["step"] == scenario.ending(1)["committed_step"] == last
    assert (scenario.checkpoints / "steps" / str(last) / "commit_success.txt").exists()
    assert scenario.ending(1)["exit_code"] == 75
    for member in scenario.attempts[1].members:
        assert "asked to stop (SIGTERM at process 1 on host" in member.termination_message


def test_stopped_run_goes_on_at_that_step(scenario):
    stopped_at = max(scenario.attempts[1][0].losses)
    assert scenario.resumed_again["restored_from"] == stopped_at
    assert min(scenario.attempts[2][0].losses) == stopped_at + 1


def test_eviction_of_all_is_one_stop(scenario):
    assert scenario.codes_after_eviction == [75] * PROCESSES, scenario.attempts[2].explain()
    assert scenario.ending(2)["committed_step"] == max(scenario.attempts[2][0].losses)


def test_losses_equal_an_undisturbed_run(scenario):
    undisturbed = scenario.attempts[3][0].losses
    for attempt in scenario.attempts[:3]:
        found = attempt[0].losses
        assert len(found) >= 3
        assert found == pytest.approx({step: undisturbed[step] for step in found}, abs=LOSS_TOLERANCE, rel=0)
