import logging

import numpy as np
import pytest

from tpujob_trainer.errors import DivergedError
from tpujob_trainer.metrics import Metrics
from tpujob_trainer.progress import Finding, Progress, read
from tpujob_trainer.report import Report
from tpujob_trainer.signals import Signals
from tpujob_trainer.train_step import StepMetrics


def metrics(loss: float = 1.0, norm: float = 1.0) -> StepMetrics:
    numbers = np.float32(loss), np.float32(norm), np.float32(0.1), np.int32(100)
    return StepMetrics(*numbers, Signals().pack())


@pytest.mark.parametrize(("loss", "norm"), [(float("nan"), 1), (float("inf"), 1), (1, float("nan")), (1, float("inf"))])
def test_what_is_not_finite_ends_the_run(loss: float, norm: float) -> None:
    with pytest.raises(DivergedError, match=r"^step 7: .*spec\.trainer\.optimizer\.learningRate") as error:
        read(7, metrics(loss, norm))
    assert error.value.exit_code == 76


def test_speed_is_that_of_the_window_without_the_first_step(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    report = Report()
    progress = Progress(report, Metrics(report), steps=9, log_every_steps=2, is_lead=True, clock=lambda: now[0])
    for step, at in [(1, 50.0), (2, 51.0), (3, 52.0), (4, 54.0)]:
        now[0] = at
        progress.record(Finding(step, 5.0 - step, 1.0, 0.1, tokens=100, signals=Signals()), data_wait_seconds=0.5)
    facts = report.snapshot()
    assert (facts["step"], facts["loss"], facts["loss_first"]) == (4, 1.0, 4.0)
    assert facts["phase"] == "training"
    assert facts["tokens_per_second"] == pytest.approx(200 / 3)
    assert facts["data_wait_seconds"] == 0.5
    assert [record.message.split(":")[0] for record in caplog.records] == ["Step 1 of 9", "Step 2 of 9", "Step 4 of 9"]
