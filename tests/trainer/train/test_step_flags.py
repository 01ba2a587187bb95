import numpy as np
import pytest

from tpujob_trainer.train.save_policy import StepFlags, unpack


@pytest.mark.parametrize(
    ("said", "agreed"),
    [
        pytest.param([StepFlags(), StepFlags()], StepFlags(), id="nothing"),
        pytest.param(
            [StepFlags(), StepFlags(stop=True, seconds_left=20.9)],
            StepFlags(stop=True, seconds_left=20.0),
            id="one is stopped",
        ),
        pytest.param(
            [StepFlags(seconds_left=5), StepFlags(seconds_left=9)], StepFlags(seconds_left=5.0), id="least time"
        ),
        pytest.param(
            [StepFlags(stop=True, seconds_left=0), StepFlags()], StepFlags(stop=True, seconds_left=0.0), id="no time"
        ),
        pytest.param([StepFlags(save=True), StepFlags()], StepFlags(save=True), id="lead saves"),
        pytest.param(
            [StepFlags(batches_left=0), StepFlags(batches_left=1)], StepFlags(batches_left=1), id="most batches"
        ),
        pytest.param([StepFlags(batches_left=0), StepFlags(batches_left=0)], StepFlags(batches_left=0), id="no batch"),
        pytest.param([StepFlags(seconds_left=2_000_000)], StepFlags(), id="beyond the horizon"),
        pytest.param([StepFlags(seconds_left=-5)], StepFlags(seconds_left=0.0), id="too late"),
        pytest.param([StepFlags(seconds_left=999_999)], StepFlags(seconds_left=999_999.0), id="longest"),
        pytest.param(
            [StepFlags(save_seconds=0.2), StepFlags(save_seconds=7.1)],
            StepFlags(save_seconds=8.0),
            id="slowest save, rounded up",
        ),
    ],
)
def test_the_greatest_of_all_is_the_answer(said: list[StepFlags], agreed: StepFlags) -> None:
    assert unpack(np.max([one.pack() for one in said], axis=0)) == agreed
