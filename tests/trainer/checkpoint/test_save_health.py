"""When a run whose saves fail ends: by the age of its last commit."""

import pytest

from tpujob_trainer.checkpoint.save import Outcome
from tpujob_trainer.checkpoint.save_decision import Alarm
from tpujob_trainer.values import errors

LIMIT = 3600
OVERLOADED = Outcome(problem="503")
REFUSED = Outcome(problem="403", is_refused=True)


@pytest.fixture
def alarm(clock):
    return Alarm("gs://b/run", limit_seconds=LIMIT, clock=clock)


def fail(alarm, clock, *, after, why=OVERLOADED):
    clock.now += after
    alarm.failed(why, elapsed_seconds=10)
    alarm.check(7)


def test_age_counts_from_the_last_commit_and_not_from_the_first_failure(alarm, clock):
    alarm.begun()
    alarm.committed()
    fail(alarm, clock, after=3000)
    fail(alarm, clock, after=500)
    with pytest.raises(errors.TrainerError, match="nothing was committed for 3660 s; the newest checkpoint is step 7"):
        fail(alarm, clock, after=160)


def test_before_any_commit_it_counts_from_the_first_save(alarm, clock):
    clock.now += 10 * LIMIT  # to restore and compile
    alarm.begun()
    fail(alarm, clock, after=100)
    alarm.begun()
    fail(alarm, clock, after=3400)
    with pytest.raises(errors.TrainerError):
        fail(alarm, clock, after=100)


def test_problem_is_named_while_saves_fail(alarm, clock):
    assert (alarm.since, alarm.problem) == (None, "")
    alarm.begun()
    fail(alarm, clock, after=1)
    assert alarm.problem == "503"
    alarm.committed()
    assert (alarm.since, alarm.problem) == (None, "")


def test_first_failure_is_always_tried_again(alarm, clock):
    alarm.begun()
    alarm.committed()
    fail(alarm, clock, after=2 * LIMIT)
    with pytest.raises(errors.TrainerError):
        fail(alarm, clock, after=60)


def test_limit_of_nothing_ends_the_run_at_the_first_failure(clock):
    alarm = Alarm("gs://b/run", limit_seconds=0, clock=clock)
    alarm.begun()
    with pytest.raises(errors.TrainerError, match="503"):
        fail(alarm, clock, after=1)


def test_commit_ends_the_alarm(alarm, clock):
    alarm.begun()
    fail(alarm, clock, after=3500)
    assert alarm.since == clock.now - 10
    alarm.committed()
    assert alarm.since is None
    clock.now += 2 * LIMIT
    alarm.check(8)
    fail(alarm, clock, after=0)


def test_refusal_is_told_from_other_failures(alarm, clock):
    alarm.begun()
    fail(alarm, clock, after=3000, why=REFUSED)
    with pytest.raises(errors.NotFoundError, match=r"spec.checkpointDir: saves to gs://b/run fail"):
        fail(alarm, clock, after=3000, why=REFUSED)
