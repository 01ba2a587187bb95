"""What becomes of steps whose loss or gradient is not finite: arithmetic only.

- The step itself leaves weights and optimizer as they were, on the devices; the batch counts as used.
- So many of these are allowed (`spec.trainer.nonFinite`). Beyond that, and at once where the weights themselves are not
  finite, the run goes back to a checkpoint from before the first of them, once, and leaves their batches out.
- The batch before the first is left out as well: finite as its gradient was, its update may have spoiled the weights.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator

from tpujob_trainer.config.schema import NonFiniteConfig
from tpujob_trainer.data import LocalBatch
from tpujob_trainer.errors import DivergedError


class NonFiniteError(DivergedError):
    """More steps were not finite than allowed, or the weights are not."""

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
        """Counts a step; how many there are now within the window.

        Raises:
            NonFiniteError: they are too many, or the weights are beyond repair.
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
    """The range as people write it: "step 7", "steps 7 to 9"."""
    return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def go_back_below(steps: tuple[int, ...]) -> int:
    """Checkpoints of this step and later ones are not to be trusted: no finite loss was seen with their weights."""
    return steps[0] - 1


def batch_of_step(step: int, *, first: int, taken: int, left_out: Collection[int]) -> int:
    """Which batch, counted from 1, a step was trained on.

    Args:
        step: steps done after it.
        first: steps done when the loop started.
        taken: batches used by then, whether trained on or left out.
        left_out: batches that no step is trained on.
    """
    batch = taken
    for _ in range(first, step):
        batch += 1
        while batch in left_out:
            batch += 1
    return batch


def batches_to_leave_out(steps: tuple[int, ...], *, first: int, taken: int, left_out: Collection[int]) -> list[int]:
    """The batches of steps that were not finite, and that of the step before the first. Arguments as above."""
    suspects = {steps[0] - 1, *steps}
    return [
        batch_of_step(step, first=first, taken=taken, left_out=left_out) for step in sorted(suspects) if step > first
    ]


class SkipBatches:
    """The loader's batches without some. They are read and count in the data position: only no step sees them."""

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
