"""The handling of steps whose loss or gradient is not finite: arithmetic only.

- The step itself leaves weights and optimizer on the devices unchanged; its batch counts as used.
- A limited number of these is allowed (`spec.trainer.nonFinite`). Beyond that, and at once if the weights are not
  finite, the run goes back to a checkpoint from before the first of them, and skips their batches.
- The batch before the first is skipped, too: its gradient was finite, but its update may have damaged the weights.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator

from tpujob_trainer.config.schema import NonFiniteConfig
from tpujob_trainer.data import LocalBatch
from tpujob_trainer.values.errors import DivergedError


class NonFiniteError(DivergedError):
    """More steps were not finite than allowed, or the weights are not finite."""

    def __init__(self, message: str, steps: tuple[int, ...]) -> None:
        """`steps` are those that were not finite, ascending."""
        super().__init__(message)
        self.steps = steps
        self.is_shared = True  # all processes read the same numbers


class SkipBudget:
    """Counts the steps that were not finite."""

    def __init__(self, config: NonFiniteConfig) -> None:
        self._config = config
        self._skipped: collections.deque[int] = collections.deque()

    def skipped(self, step: int, *, weights_are_finite: bool) -> int:
        """Counts a step; returns the number within the window.

        Raises:
            NonFiniteError: there are too many, or the weights are not finite.
        """
        self._skipped.append(step)
        while self._skipped[0] <= step - self._config.window_steps:
            self._skipped.popleft()
        steps = tuple(self._skipped)
        if not weights_are_finite:
            raise NonFiniteError(f"{spelled(steps)}: the loss is not finite, and neither are the weights", steps)
        if len(steps) > self._config.max_skips:
            raise NonFiniteError(
                f"{spelled(steps)}: the loss or the gradient is not finite in {len(steps)} steps; "
                f"{self._config.max_skips} in {self._config.window_steps} (spec.trainer.nonFinite) are allowed",
                steps,
            )
        return len(steps)


def spelled(steps: tuple[int, ...]) -> str:
    """The range as text: "step 7", "steps 7 to 9"."""
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def go_back_below(steps: tuple[int, ...]) -> int:
    """The first step whose checkpoints, as later ones, are not trusted: no finite loss was seen with their weights."""
    return steps[0] - 1


def batch_of_step(step: int, *, first: int, taken: int, left_out: Collection[int]) -> int:
    """The batch, counted from 1, that a step was trained on.

    Args:
        step: Steps done after it.
        first: Steps done when the loop started.
        taken: Batches used by then, whether trained on or skipped.
        left_out: Batches that no step is trained on.
    """
    batch = taken
    for _ in range(first, step):
        batch += 1
        while batch in left_out:
            batch += 1
    return batch


def batches_to_leave_out(steps: tuple[int, ...], *, first: int, taken: int, left_out: Collection[int]) -> list[int]:
    """The batches of `steps` and of the step before; the other arguments are those of `batch_of_step`."""
    suspects = {steps[0] - 1, *steps}
    return [
        batch_of_step(step, first=first, taken=taken, left_out=left_out) for step in sorted(suspects) if step > first
    ]


class SkipBatches:
    """The loader's batches without some. Skipped batches are read and count in the data position."""

    def __init__(self, loader: Iterator[LocalBatch], *, taken: int, left_out: Collection[int]) -> None:
        """`taken` batches came before; `left_out` are numbers counted from 1 since the beginning of the run."""
        self._loader = loader
        self.taken = taken
        self._left_out = left_out

    def __iter__(self) -> SkipBatches:
        return self

    def __next__(self) -> LocalBatch:
        while True:
            batch = next(self._loader)
            self.taken += 1
            if self.taken not in self._left_out:
                return batch
