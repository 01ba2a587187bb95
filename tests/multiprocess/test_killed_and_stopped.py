"""A run that is killed, goes on, is stopped, goes on: it trains as if nothing had happened."""

import json
import signal
import time

import pytest

from tests.multiprocess import attempts, processes
from tests.multiprocess.attempts import ENDLESS, PROCESSES, committed, trained

pytestmark = pytest.mark.processes

EVERY = 10
END_SECONDS = 9.0
"""By then all processes are gone after one was killed: nobody waits for the heartbeat of 10 s."""
LOSS_TOLERANCE = 2e-4
"""Of losses near 6 that are printed with four decimals; 8 devices in 2 processes and in 1 add in another order."""


class Story(attempts.Story):
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
        self.intruder = processes.Run([])
        self.codes_of_intruder: list[int] = []
        self.phase_beside_intruder = ""
        self.codes_after_eviction: list[int] = []


@pytest.fixture(scope="module")
def story(tmp_path_factory, trainer_block):
    """Attempt 0: process 1 is killed. Attempt 1: process 1 alone is asked to stop. Attempt 2: both are.

    Attempt 3 is another run, in one process, that nothing happens to.
    """
    story = Story(tmp_path_factory.mktemp("story"), trainer_block(steps=ENDLESS, every_steps=EVERY))
    with story.attempt() as run:
        story.killed_after = run.wait_for_report("a commit", committed(EVERY), limit_seconds=240)["committed_step"]
        processes.kill(run[1])
        story.killed_at = time.monotonic()
        story.codes_after_kill = run.wait(limit_seconds=60)
    with story.attempt() as run:
        story.resumed = run.wait_for_report("progress", lambda report: report["restored_from"] is not None)
        run.wait_for_report("some steps", trained(story.resumed["restored_from"] + 3), limit_seconds=240)
        processes.kill(run[1], signal.SIGTERM)
        story.codes_after_stop = run.wait(limit_seconds=60)
    with story.attempt() as run:
        story.resumed_again = run.wait_for_report("a restore", lambda report: report["restored_from"] is not None)
        first = run.wait_for_report("some steps", trained(story.resumed_again["restored_from"] + 3), limit_seconds=240)
        story.intruder = processes.start(
            story.folder / "intruder",
            processes=PROCESSES,
            devices=1,
            config=story.config,
            checkpoint_dir=story.checkpoints,
        )
        with story.intruder:
            story.codes_of_intruder = story.intruder.wait(limit_seconds=120)
        later = run.wait_for_report("more steps", trained(first["step"] + 1), limit_seconds=120)
        story.phase_beside_intruder = later["phase"]
        for member in run.members:
            processes.kill(member, signal.SIGTERM)
        story.codes_after_eviction = run.wait(limit_seconds=60)
    last = max(run[0].losses)
    with story.attempt(count=1, devices=8, checkpoint_dir=story.folder / "undisturbed") as run:
        run.wait_for_report("as many steps", trained(last), limit_seconds=240)
        processes.kill(run[0], signal.SIGTERM)
        run.wait(limit_seconds=60)
    return story


def test_killed_process_ends_all(story):
    # 1 and not 134: JAX's own abort names nobody, and comes later.
    assert story.codes_after_kill == [1, 137], story.attempts[0].explain()
    gone = [member.ended_at - story.killed_at for member in story.attempts[0].members]
    assert max(gone) < END_SECONDS


def test_survivor_names_the_lost_process(story):
    words, report = story.attempts[0][0].termination_message.splitlines()
    assert "lost process 1 on host" in words
    assert "its connection broke" in words
    # Nobody can be asked any more: the last report is there for the operator.
    assert json.loads(report.removeprefix("report: "))["committed_step"] >= story.killed_after


def test_next_attempt_goes_on_from_the_last_commit(story):
    restored = story.resumed["restored_from"]
    assert restored >= story.killed_after
    assert restored % EVERY == 0
    assert min(story.attempts[1][0].losses) == restored + 1


def test_batches_before_each_restart_are_those_that_were_saved(story):
    for attempt, resumed in ((1, story.resumed), (2, story.resumed_again)):
        told = f"Step {resumed['restored_from']} goes on from the batches it was saved after: digest="
        assert told in story.attempts[attempt][0].log


def test_attempt_that_lost_a_process_has_its_exit_code(story):
    assert story.ending(0)["exit_code"] == 1
    assert "lost process 1" in story.ending(0)["message"]


def test_stopping_one_stops_all_at_the_same_step(story):
    assert story.codes_after_stop == [75] * PROCESSES, story.attempts[1].explain()
    last = max(story.attempts[1][0].losses)
    assert story.ending(1)["step"] == story.ending(1)["committed_step"] == last
    assert (story.checkpoints / "steps" / str(last) / "commit_success.txt").exists()
    assert story.ending(1)["exit_code"] == 75
    for member in story.attempts[1].members:
        assert "asked to stop (SIGTERM at process 1 on host" in member.termination_message


def test_stopped_run_goes_on_at_that_step(story):
    stopped_at = max(story.attempts[1][0].losses)
    assert story.resumed_again["restored_from"] == stopped_at
    assert min(story.attempts[2][0].losses) == stopped_at + 1


def test_eviction_of_all_is_one_stop(story):
    assert story.codes_after_eviction == [75] * PROCESSES, story.attempts[2].explain()
    assert story.ending(2)["committed_step"] == max(story.attempts[2][0].losses)


def test_second_run_in_the_directory_is_refused(story):
    assert story.codes_of_intruder == [78] * PROCESSES, story.intruder.explain()
    for member in story.intruder.members:
        assert f"another run is writing to {story.checkpoints}" in member.termination_message
        assert f"pid {story.attempts[2][0].popen.pid} on host" in member.termination_message
    assert story.phase_beside_intruder == "training"


def test_losses_equal_an_undisturbed_run(story):
    undisturbed = story.attempts[3][0].losses
    for attempt in story.attempts[:3]:
        found = attempt[0].losses
        assert len(found) >= 3
        assert found == pytest.approx({step: undisturbed[step] for step in found}, abs=LOSS_TOLERANCE, rel=0)
