import numpy as np
import pytest

from tpujob_trainer.train.step_flags import StepFlags, unpack


@pytest.mark.parametrize(
    ("said", "agreed"),
    [
        ([StepFlags(), StepFlags()], StepFlags()),
        ([StepFlags(), StepFlags(stop=True, seconds_left=20.9)], StepFlags(stop=True, seconds_left=20.0)),
        ([StepFlags(seconds_left=5), StepFlags(seconds_left=9)], StepFlags(seconds_left=5.0)),
        ([StepFlags(stop=True, seconds_left=0), StepFlags()], StepFlags(stop=True, seconds_left=0.0)),
        ([StepFlags(save=True), StepFlags()], StepFlags(save=True)),
        ([StepFlags(save_seconds=0.2), StepFlags(save_seconds=7.1)], StepFlags(save_seconds=8.0)),
    ],
    ids=["nothing", "one is stopped", "least time", "no time", "lead saves", "slowest save, rounded up"],
)
def test_the_greatest_of_all_is_the_answer(said: list[StepFlags], agreed: StepFlags) -> None:
    assert unpack(np.max([one.pack() for one in said], axis=0)) == agreed
