import logging
from collections.abc import Mapping

import numpy as np
import pytest

from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.report import Report
from tpujob_trainer.telemetry.trackers import Trackers
from tpujob_trainer.train.save_policy import StepFlags
from tpujob_trainer.train.step import StepMetrics
from tpujob_trainer.train.step_logger import Progress, StepResult, read


def metrics(loss: float = 1.0, norm: float = 1.0) -> StepMetrics:
    numbers = np.float32(loss), np.float32(norm), np.float32(0.1), np.int32(100)
    return StepMetrics(*numbers, StepFlags().pack())


@pytest.mark.parametrize(
    ("loss", "norm", "is_finite"),
    [(1, 1, True), (float("nan"), 1, False), (float("inf"), 1, False), (1, float("nan"), False)],
)
def test_what_is_not_finite_is_found(loss: float, norm: float, is_finite: bool) -> None:
    assert read(7, metrics(loss, norm)).is_finite == is_finite


def test_a_loss_that_is_not_finite_is_not_reported() -> None:
    report = Report()
    progress = Progress(report, Metrics(report), steps=9, log_every_steps=1, is_lead=False)
    for step, loss in [(1, 2.0), (2, float("nan"))]:
        progress.record(read(step, metrics(loss)), data_wait_seconds=0)
    assert (report.snapshot()["step"], report.snapshot()["loss"]) == (2, 2.0)


def test_a_batch_with_nothing_to_learn_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    report = Report()
    progress = Progress(report, Metrics(report), steps=9, log_every_steps=1, is_lead=True)
    for step, tokens in [(1, 9), (2, 0), (3, 0)]:
        progress.record(StepResult(step, 0.0, 0.0, 0.1, tokens=tokens, flags=StepFlags()), data_wait_seconds=0)
    (warned,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warned.startswith("Step 2: its batch has no token that is learned, so loss and gradient are 0")


def test_speed_is_that_of_the_window_without_the_first_step(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    report = Report()
    progress = Progress(report, Metrics(report), steps=9, log_every_steps=2, is_lead=True, clock=lambda: now[0])
    for step, at in [(1, 50.0), (2, 51.0), (3, 52.0), (4, 54.0)]:
        now[0] = at
        progress.record(StepResult(step, 5.0 - step, 1.0, 0.1, tokens=100, flags=StepFlags()), data_wait_seconds=0.5)
    facts = report.snapshot()
    assert (facts["step"], facts["loss"], facts["loss_first"]) == (4, 1.0, 4.0)
    assert facts["phase"] == "training"
    assert facts["tokens_per_second"] == pytest.approx(200 / 3)
    assert facts["data_wait_seconds"] == 0.5
    assert [record.message.split(":")[0] for record in caplog.records] == ["Step 1 of 9", "Step 2 of 9", "Step 4 of 9"]
    # Three steps took 4 s since the first, which held the compile; none is left to tell of behind the last.
    lefts = [record.message.partition(" tokens/s")[2] for record in caplog.records]
    assert lefts == ["", ", 0:00:07 left", ", 0:00:07 left"]
    progress.record(StepResult(9, 1.0, 1.0, 0.1, tokens=100, flags=StepFlags()), data_wait_seconds=0.5)
    assert "left" not in caplog.records[-1].message


def test_a_step_back_before_the_first_has_no_pace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    report = Report()
    progress = Progress(report, Metrics(report), steps=9, log_every_steps=1, is_lead=True, clock=lambda: 1.0)
    for step in (5, 3):
        progress.record(StepResult(step, 1.0, 1.0, 0.1, tokens=100, flags=StepFlags()), data_wait_seconds=0.5)
    assert [record.message.count("left") for record in caplog.records] == [0, 0]


class Kept(Trackers):
    """Keeps the latest numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, float] = {}

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self.values = dict(values)


def test_tokens_seen_are_those_of_all_steps_also_before_this_attempt() -> None:
    report, trackers = Report(), Kept()
    progress = Progress(
        report, Metrics(report), steps=9, log_every_steps=1, is_lead=True, tokens_per_step=64, trackers=trackers
    )
    progress.record(read(7, metrics(2.0)), data_wait_seconds=0)
    assert report.snapshot()["tokens_seen"] == 7 * 64
    assert trackers.values["train/tokens_seen"] == 7 * 64


def test_speed_leaves_out_a_pause() -> None:
    now = [0.0]
    report = Report()
    progress = Progress(report, Metrics(report), steps=9, log_every_steps=2, is_lead=False, clock=lambda: now[0])
    for step, at in [(1, 50.0), (2, 51.0), (3, 52.0), (4, 63.0)]:
        if step == 4:
            with progress.pause("evaluating"):
                now[0] = 62.0
        now[0] = at
        progress.record(StepResult(step, 1.0, 1.0, 0.1, tokens=100, flags=StepFlags()), data_wait_seconds=0)
    assert report.snapshot()["tokens_per_second"] == pytest.approx(200 / 2)


def test_utilisation_is_told_with_and_without_the_masked_half() -> None:
    report = Report()
    now = iter((0.0, 1.0, 2.0, 3.0))
    progress = Progress(
        report,
        Metrics(report),
        steps=9,
        log_every_steps=1,
        is_lead=True,
        mfu=lambda speed: speed / 200,
        causal_fraction=0.75,
        clock=lambda: next(now),
    )
    for step in (1, 2):
        progress.record(StepResult(step, 5.0, 1.0, 0.1, tokens=100, flags=StepFlags()), data_wait_seconds=0.0)
    assert (report.snapshot()["mfu"], report.snapshot()["mfu_causal"]) == (0.5, 0.375)
