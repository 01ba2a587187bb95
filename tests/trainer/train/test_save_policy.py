import pytest

from tpujob_trainer.config.schema import CheckpointConfig
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.train.save_policy import SavePolicy, StepFlags, is_due_by_steps

STOP = StopRequest(grace_seconds=30)


@pytest.mark.parametrize(
    ("every", "begun_at", "saved"),
    [
        (None, 0, []),
        (4, 0, [4, 8]),
        (4, 4, [8]),
        (4, 5, [8]),
        (1, 7, [8, 9]),
        (100, 0, []),
    ],
    ids=["by time alone", "from the beginning", "restored at a save", "restored between", "every step", "too short"],
)
def test_steps_at_which_to_save(every: int | None, begun_at: int, saved: list[int]) -> None:
    assert [s for s in range(begun_at, 10) if is_due_by_steps(s, every=every, begun_at=begun_at)] == saved


class Hand:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def asked(policy: SavePolicy, hand: Hand, seconds: range) -> list[int]:
    """The seconds at which it asks for a save."""
    found = []
    for second in seconds:
        hand.now = 1000 + second
        if policy.flags().save:
            found.append(second)
    return found


def test_a_save_is_asked_for_once_per_interval() -> None:
    hand = Hand()
    policy = SavePolicy(CheckpointConfig(every_seconds=60), STOP, decides=True, clock=hand)
    assert asked(policy, hand, range(0, 200, 20)) == [60, 120, 180]


def test_any_save_winds_the_clock_up() -> None:
    hand = Hand()
    clock = SavePolicy(CheckpointConfig(every_seconds=60), STOP, decides=True, clock=hand)
    hand.now += 59
    clock.saved()
    hand.now += 59
    assert not clock.flags().save
    hand.now += 1
    assert clock.flags().save


def test_a_save_that_came_to_nothing_is_asked_for_again_sooner() -> None:
    hand = Hand()
    policy = SavePolicy(CheckpointConfig(every_seconds=600), STOP, decides=True, clock=hand)
    policy.saved()
    policy.try_again(in_seconds=30)
    assert asked(policy, hand, range(0, 1300, 10)) == [30, 630, 1230]


def test_only_process_0_asks() -> None:
    hand = Hand()
    policy = SavePolicy(CheckpointConfig(every_seconds=1), STOP, decides=False, clock=hand)
    assert asked(policy, hand, range(0, 200, 100)) == []


@pytest.mark.parametrize(
    ("left", "took", "answer"),
    [(30, 15, True), (30, 16, False), (1, 0, True), (float("inf"), 500, True)],
    ids=["just", "no longer", "never measured", "not asked to stop"],
)
def test_a_save_fits_twice_or_not_at_all(left: float, took: float, answer: bool) -> None:
    policy = SavePolicy(CheckpointConfig(), STOP, decides=True)
    assert policy.fits(StepFlags(seconds_left=left, save_seconds=took)) is answer


@pytest.mark.parametrize(
    ("step", "asked", "every_steps", "due"),
    [
        (8, False, 4, True),
        (9, False, 4, False),
        (9, True, 4, True),
        (9, True, None, True),
        (9, False, None, False),
        (4, False, 4, False),
    ],
    ids=["its step", "another step", "asked for", "asked for, without steps", "never", "the first"],
)
def test_save_is_due_by_steps_or_when_asked_for(step: int, asked: bool, every_steps: int | None, due: bool) -> None:
    policy = SavePolicy(CheckpointConfig(every_steps=every_steps), STOP, decides=True)
    assert policy.is_due(step, first=4, flags=StepFlags(save=asked)) is due


def test_flags_carry_what_the_last_save_took() -> None:
    policy = SavePolicy(CheckpointConfig(), STOP, decides=True, measured_seconds=lambda: 7.5)
    assert policy.flags() == StepFlags(save_seconds=7.5)
    assert policy.stop_flags() == StepFlags()


def test_commit_is_waited_for_within_the_time_that_is_left() -> None:
    hand = Hand()
    stop = StopRequest(grace_seconds=30, clock=hand)
    policy = SavePolicy(CheckpointConfig(), stop, decides=True, clock=hand)
    assert policy.commit_seconds() == 620  # checkpoint.timeoutSeconds, and the answer to all processes
    stop.request()
    assert policy.commit_seconds() == stop.seconds_left() < 30
    assert policy.flags().stop
    assert policy.stop_flags() == StepFlags(stop=True, seconds_left=stop.seconds_left())
