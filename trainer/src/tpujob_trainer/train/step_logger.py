"""Publishes the progress of the loop: in the report, the metrics and trackers, and on process 0 in the log."""

import contextlib
import datetime
import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tpujob_contract.reports.report import Phase
from tpujob_trainer.telemetry.metrics import Metrics
from tpujob_trainer.telemetry.report import Report
from tpujob_trainer.telemetry.trackers import Trackers
from tpujob_trainer.train.save_policy import StepFlags, unpack
from tpujob_trainer.train.step import StepMetrics

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StepResult:
    """The metrics of a step as numbers on the host."""

    step: int
    """Steps done after it."""
    loss: float
    gradient_norm: float
    learning_rate: float
    tokens: int
    flags: StepFlags

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient are finite; otherwise the step changed no weights."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def read(step: int, metrics: StepMetrics) -> StepResult:
    """The metrics of a step; waits until the devices have computed it."""
    return StepResult(
        step=step,
        loss=float(np.asarray(metrics.loss)),
        gradient_norm=float(np.asarray(metrics.gradient_norm)),
        learning_rate=float(np.asarray(metrics.learning_rate)),
        tokens=int(np.asarray(metrics.tokens)),
        flags=unpack(np.asarray(metrics.signals)),
    )


class Progress:
    """Reports each step, and the speed since the last log line."""

    def __init__(
        self,
        report: Report,
        metrics: Metrics,
        *,
        steps: int,
        log_every_steps: int,
        is_lead: bool,
        tokens_per_step: int | None = None,
        mfu: Callable[[float], float | None] = lambda tokens_per_second: None,
        causal_fraction: float = 1.0,
        trackers: Trackers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._metrics = metrics
        self._steps = steps
        self._tokens_per_step = tokens_per_step
        self._every = log_every_steps
        self._is_lead = is_lead
        self._mfu = mfu
        self._causal_fraction = causal_fraction  # of the operations that `mfu` counts
        self._trackers = trackers or Trackers()
        self._attempt_steps = 0
        self._last_metrics: dict[str, float] = {}
        self._clock = clock
        self._last = self._window_began = clock()
        self._window_tokens = 0
        self._is_first, self._has_warned = True, False
        self._paced_from = (0, 0.0)
        """The first step of the attempt, which includes compiling, and when it ended."""

    def record(self, result: StepResult, *, data_wait_seconds: float) -> None:
        """Reports a step. The first one of an attempt is not timed: it includes compiling."""
        now = self._clock()
        self._metrics.heartbeat()
        self._metrics.tokens.inc(result.tokens)
        self._attempt_steps += 1
        self._last_metrics = {
            "loss": result.loss,
            "gradient_norm": result.gradient_norm,
            "learning_rate": result.learning_rate,
            "tokens": float(result.tokens),
        }
        self._report.update(
            step=result.step,
            tokens_seen=self._tokens_seen(result.step),
            attempt_steps=self._attempt_steps,
            data_wait_seconds=data_wait_seconds,
        )
        if result.is_finite:
            self._report.update(loss=result.loss, gradient_norm=result.gradient_norm)
        if self._is_first:
            self._report.enter("training")
            self._window_began = now
            self._paced_from = (result.step, now)
        else:
            self._metrics.step_seconds.observe(now - self._last)
            self._window_tokens += result.tokens
        self._last = now
        if not result.tokens and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "Step %d: its batch has no token that is learned, so loss and gradient are 0, and the weights stay as "
                "they were; `tpujob data inspect` shows what is learned; this is said once", result.step,
            )  # fmt: skip
        if result.step % self._every == 0 or result.step == self._steps or self._is_first:
            self._tell(result, now)
        self._is_first = False

    @contextlib.contextmanager
    def pause(self, phase: Phase) -> Iterator[None]:
        """A context manager for a phase between two steps; its time counts for no step."""
        began = self._clock()
        with self._report.during(phase):
            yield
        spent = self._clock() - began
        self._last += spent
        self._window_began += spent

    def tick(self) -> None:
        """Signals progress between two steps."""
        self._metrics.heartbeat()
        self._report.tick()

    def skipped(self, result: StepResult, *, count: int) -> None:
        """Reports a step that was not finite and changed nothing, the `count`-th within the window."""
        self._metrics.nonfinite_steps.inc()
        logger.warning(
            "Step %d: loss %g, gradient norm %g: the weights stay as they were, %d such steps so far",
            result.step,
            result.loss,
            result.gradient_norm,
            count,
        )

    def evaluated(self, step: int, loss: float, metrics: Mapping[str, float], *, tokens: int, seconds: float) -> None:
        """Logs and reports an evaluation of the state after `step` steps: the loss, and user-defined metrics."""
        self._metrics.heartbeat()
        self._report.update(evaluation_loss=loss if math.isfinite(loss) else None, evaluation_step=step)
        numbers = {"loss": loss, **metrics}
        self._trackers.scalars(step, {f"evaluation/{name}": value for name, value in numbers.items()})
        if self._is_lead:
            words = "".join(f", {name} {value:.6g}" for name, value in metrics.items())
            logger.info("Step %d: evaluation loss %.4f%s over %d tokens, in %.1f s", step, loss, words, tokens, seconds)

    @property
    def last_metrics(self) -> dict[str, float]:
        """Loss, gradient norm, learning rate and tokens of the last step; empty before the first of the attempt."""
        return dict(self._last_metrics)

    def called_back(self, step: int, numbers: Mapping[str, float]) -> None:
        """Logs and tracks the numbers of a callback for the state after `step` steps."""
        self._metrics.heartbeat()
        self._trackers.scalars(step, {f"callback/{name}": value for name, value in numbers.items()})
        if self._is_lead:
            words = ", ".join(f"{name} {value:.6g}" for name, value in numbers.items())
            logger.info("Step %d: %s", step, words)

    def sampled(self, step: int, *, prompt: str, text: str) -> None:
        """Logs and reports a text, which starts with the prompt, of the state after `step` steps."""
        self._report.update(sample=text)
        self._trackers.text(step, prompt, text)
        if self._is_lead:
            logger.info("Step %d: sample: %s", step, json.dumps(text, ensure_ascii=False))

    def _time_left(self, step: int, now: float) -> str:
        """The time left, as in `, 3:05:00 left`, at the pace of the attempt including saves; empty: unknown."""
        first, began = self._paced_from
        if not first < step < self._steps:
            return ""
        seconds = (now - began) / (step - first) * (self._steps - step)
        return f", {datetime.timedelta(seconds=round(seconds))} left"

    def _tokens_seen(self, step: int) -> int | None:
        return None if self._tokens_per_step is None else step * self._tokens_per_step

    def _tell(self, result: StepResult, now: float) -> None:
        seconds = now - self._window_began
        speed = self._window_tokens / seconds if self._window_tokens and seconds > 0 else None
        mfu = None if speed is None else self._mfu(speed)
        causal = None if mfu is None else mfu * self._causal_fraction
        if speed is not None:
            self._report.update(tokens_per_second=speed, mfu=mfu, mfu_causal=causal)
        if self._is_lead:
            logger.info(
                "Step %d of %d: loss %.4f, gradient norm %.3f, learning rate %.3g, %.0f tokens/s%s%s",
                result.step,
                self._steps,
                result.loss,
                result.gradient_norm,
                result.learning_rate,
                speed or 0.0,
                "" if mfu is None else f", MFU {mfu:.1%} ({causal:.1%} with causal attention)",
                self._time_left(result.step, now),
            )
        told = {
            "train/loss": result.loss,
            "train/gradient_norm": result.gradient_norm,
            "train/learning_rate": result.learning_rate,
            "train/tokens_per_second": speed,
            "train/mfu": mfu,
            "train/mfu_causal": causal,
            "train/tokens_seen": self._tokens_seen(result.step),
        }
        self._trackers.scalars(result.step, {name: value for name, value in told.items() if value is not None})
        self._window_began, self._window_tokens = now, 0
