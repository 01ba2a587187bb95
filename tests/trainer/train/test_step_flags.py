import numpy as np
import pytest

from tpujob_trainer.train.save_policy import StepFlags, unpack


@pytest.mark.parametrize(
    ("said", "agreed"),
    [
        ([StepFlags(), StepFlags()], StepFlags()),
        ([StepFlags(), StepFlags(stop=True, seconds_left=20.9)], StepFlags(stop=True, seconds_left=20.0)),
        ([StepFlags(seconds_left=5), StepFlags(seconds_left=9)], StepFlags(seconds_left=5.0)),
        ([StepFlags(stop=True, seconds_left=0), StepFlags()], StepFlags(stop=True, seconds_left=0.0)),
        ([StepFlags(save=True), StepFlags()], StepFlags(save=True)),
        ([StepFlags(batches_left=0), StepFlags(batches_left=1)], StepFlags(batches_left=1)),
        ([StepFlags(batches_left=0), StepFlags(batches_left=0)], StepFlags(batches_left=0)),
        ([StepFlags(seconds_left=2_000_000)], StepFlags()),
        ([StepFlags(seconds_left=-5)], StepFlags(seconds_left=0.0)),
        ([StepFlags(seconds_left=999_999)], StepFlags(seconds_left=999_999.0)),
        ([StepFlags(save_seconds=0.2), StepFlags(save_seconds=7.1)], StepFlags(save_seconds=8.0)),
    ],
    ids=[
        "nothing",
        "one is stopped",
        "least time",
        "no time",
        "lead saves",
        "most batches",
        "no batch",
        "beyond the horizon",
        "too late",
        "longest",
        "slowest save, rounded up",
    ],
)
def test_the_greatest_of_all_is_the_answer(said: list[StepFlags], agreed: StepFlags) -> None:
    assert unpack(np.max([one.pack() for one in said], axis=0)) == agreed


def test_flags_say_nothing_by_default() -> None:
    assert StepFlags().pack().tolist() == [0, 0, 0, 0, 2]
