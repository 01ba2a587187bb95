"""When a run counts as stalled."""

import dataclasses

import pytest

from tpujob_trainer.distributed.exit import watchdog
from tpujob_trainer.distributed.exit.watchdog import Watchdog, WatchdogConfig
from tpujob_trainer.telemetry.report import Report


@dataclasses.dataclass
class Watched:
    """A watchdog over a report, and the clock of both."""

    report: Report = dataclasses.field(default_factory=Report)
    now: float = 1000.0

    def dog(self, **config):
        return Watchdog(self.report, WatchdogConfig(**config), clock=lambda: self.now)

    def train(self, dog, *step_seconds):
        self.report.enter("training")
        dog.look()
        for seconds in step_seconds:
            self.now += seconds
            self.report.update(step=self.report.step + 1)
            assert dog.look() is None


def test_phase_that_goes_on_too_long_is_noticed():
    watched = Watched()
    dog = watched.dog(phase_seconds=60)
    watched.now += 60
    assert dog.look() is None
    watched.now += 0.6
    assert dog.look() == "no progress for 61 s"


def test_new_phase_is_progress():
    watched = Watched()
    dog = watched.dog(phase_seconds=60)
    for phase in ("restoring", "compiling", "restoring"):
        watched.now += 50
        watched.report.enter(phase)
        assert dog.look() is None


def test_news_that_are_no_progress_do_not_count():
    watched = Watched()
    dog = watched.dog(phase_seconds=60)
    watched.now += 61
    watched.report.update(message="still here", tokens_per_second=0.0)
    assert dog.look() is not None


@pytest.mark.parametrize(
    ("steps", "config", "limit"),
    [
        ((), {}, 300),
        ((1, 1, 1), {}, 300),
        ((30, 31, 29, 30, 90), {}, 600),
        ((30, 31, 29), {"step_seconds": 45}, 45),
    ],
)
def test_limit_of_a_step_follows_from_the_usual_one(steps, config, limit):
    watched = Watched()
    dog = watched.dog(phase_seconds=5000, **config)
    watched.train(dog, *steps)
    assert dog.limit_seconds == limit


def test_save_within_training_has_the_limit_of_phases():
    watched = Watched()
    dog = watched.dog(step_seconds=10, phase_seconds=100)
    watched.train(dog, 1, 1)
    with watched.report.during("saving"):
        assert dog.look() is None
        watched.now += 90
        assert dog.look() is None
    assert dog.look() is None
    watched.now += 11
    assert dog.look() == "no progress for 11 s"


def test_progress_says_where_the_main_thread_is():
    watched = Watched()
    dog = watched.dog()
    watched.train(dog, 1, 1, 1)
    watched.now += 7
    progress_state = dog.progress_state()
    assert (progress_state.phase, progress_state.step, progress_state.seconds) == ("training", 3, 7.0)
    assert progress_state.where.endswith(" in main_thread")
    assert not progress_state.waits


def test_progress_is_of_this_moment():
    watched = Watched()
    dog = watched.dog()
    watched.now += 20
    watched.report.enter("training")
    assert dog.progress_state().seconds == 0.0, "before the watchdog has looked"


def test_stacks_begin_with_the_main_thread():
    text = watchdog.all_threads()
    assert text.startswith("Thread MainThread:\n")
    assert "in test_stacks_begin_with_the_main_thread" in text
