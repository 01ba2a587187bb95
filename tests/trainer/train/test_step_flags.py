import numpy as np
import pytest

from tpujob_trainer.train.step_flags import Signals, unpack


@pytest.mark.parametrize(
    ("said", "agreed"),
    [
        ([Signals(), Signals()], Signals()),
        ([Signals(), Signals(stop=True, seconds_left=20.9)], Signals(stop=True, seconds_left=20.0)),
        ([Signals(seconds_left=5), Signals(seconds_left=9)], Signals(seconds_left=5.0)),
        ([Signals(stop=True, seconds_left=0), Signals()], Signals(stop=True, seconds_left=0.0)),
        ([Signals(save=True), Signals()], Signals(save=True)),
        ([Signals(save_seconds=0.2), Signals(save_seconds=7.1)], Signals(save_seconds=8.0)),
    ],
    ids=["nothing", "one is stopped", "least time", "no time", "lead saves", "slowest save, rounded up"],
)
def test_the_greatest_of_all_is_the_answer(said: list[Signals], agreed: Signals) -> None:
    assert unpack(np.max([one.pack() for one in said], axis=0)) == agreed
