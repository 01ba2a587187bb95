"""Four processes, then eight, then two, interrupted twice: the batches and losses of a run that nothing happens to."""

import signal

import numpy as np
import pytest

from tests.harness import processes
from tests.multiprocess import attempts
from tests.multiprocess.attempts import ENDLESS, committed
from tests.multiprocess.test_same_batches import data_state
from tpujob_trainer import data

pytestmark = [pytest.mark.processes, pytest.mark.faults]

EVERY = 10
LANES = 4
"""Of two rows each: eight processes share them, two have two each."""
CONSTANT = {"warmupSteps": 0, "finalLearningRateFraction": 1}
"""A learning rate that does not depend on the number of steps, which the two runs do not share."""
LOSS_TOLERANCE = 1e-3
"""Of losses near 6 that are printed with four decimals: 8 devices in 4, 8, 2 and 1 processes add in another order."""


class Scenario(attempts.Scenario):
    """How the interruptions ended, and where the next attempts began."""

    def __init__(self, folder, config):
        super().__init__(folder, config)
        self.codes_after_stop: list[int] = []
        self.codes_after_kill: list[int] = []
        self.restored: list[int] = []
        self.step = 0
        """The last one that both runs have committed."""


@pytest.fixture(scope="module")
def scenario(tmp_path_factory, trainer_block):
    """Attempts 0 to 2 are one run; attempt 3 is another one, of one process, that nothing happens to."""
    block = trainer_block(steps=ENDLESS, every_steps=EVERY, optimizer=CONSTANT)
    block["data"]["lanes"] = LANES
    scenario = Scenario(tmp_path_factory.mktemp("moves"), block)
    with scenario.attempt(count=4, devices=2) as run:
        run.wait_for_report("a commit", committed(EVERY))
        processes.kill(run[2], signal.SIGTERM)
        scenario.codes_after_stop = run.wait()
    with scenario.attempt(count=8, devices=1) as run:
        first = run.wait_for_report("a restore", lambda report: report["restored_from"])
        run.wait_for_report("a later commit", committed(first["restored_from"] + EVERY))
        processes.kill(run[5])
        scenario.codes_after_kill = run.wait()
    with scenario.attempt(count=2, devices=4) as run:
        second = run.wait_for_report("a restore", lambda report: report["restored_from"])
        last = run.wait_for_report("the last commit", committed(second["restored_from"] + EVERY))
    scenario.step = last["committed_step"]
    scenario.config["steps"] = scenario.step  # a run's last step is saved, however slow the disk is for those before
    with scenario.attempt(count=1, devices=8, checkpoint_dir=scenario.folder / "undisturbed") as run:
        assert run.wait() == [0], run.explain()
    scenario.restored = [first["restored_from"], second["restored_from"]]
    return scenario


def test_both_interruptions_happened(scenario):
    assert scenario.codes_after_stop == [75] * 4
    assert scenario.codes_after_kill[5] == 137
    assert 0 < scenario.restored[0] < scenario.restored[1] < scenario.step


def test_batches_are_those_of_an_undisturbed_run(scenario):
    moved, undisturbed = (data_state(scenario.folder / name, scenario.step) for name in ("checkpoints", "undisturbed"))

    np.testing.assert_array_equal(moved, undisturbed)
    assert data.batches_digest(moved) == data.batches_digest(undisturbed)
    assert moved[:, data.STATE_COLUMNS.index("batches")].tolist() == [scenario.step] * LANES


def test_both_restarts_compared_the_batches_with_those_that_were_saved(scenario):
    for run, step in zip(scenario.attempts[1:3], scenario.restored, strict=True):
        assert f"Step {step} goes on from the batches it was saved after: digest=" in run[0].log


def test_losses_are_those_of_an_undisturbed_run(scenario):
    *moved, undisturbed = (attempt[0].losses for attempt in scenario.attempts)
    told = {step: loss for losses in moved for step, loss in losses.items() if step <= scenario.step}

    assert sorted(told) == list(range(1, scenario.step + 1))
    assert told == pytest.approx({step: undisturbed[step] for step in told}, abs=LOSS_TOLERANCE, rel=0)
