"""Texts by the model in training, now and then between two steps; on all processes, told by process 0."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from tpujob_trainer.data import Tokenizer
from tpujob_trainer.model.decoder import Weights
from tpujob_trainer.train.generate import until_end
from tpujob_trainer.train.step import TrainState
from tpujob_trainer.train.step_flags import StepFlags
from tpujob_trainer.train.step_logger import Progress

Sampler = Callable[[Weights], jax.Array]


class Samples:
    """Has the present model write; a hook of the loop."""

    def __init__(
        self,
        compiled: Callable[[], Sampler],
        tokenizer: Tokenizer,
        progress: Progress,
        *,
        prompt: str,
        every_steps: int | None,
    ) -> None:
        """`compiled` makes the sampler, here and now if it is needed before the end."""
        self.every_steps = every_steps
        self._compiled = compiled
        self._sampler = compiled() if every_steps else None
        self._tokenizer = tokenizer
        self._progress = progress
        self._prompt = prompt

    def run(self, step: int, state: TrainState, get_flags: Callable[[], StepFlags]) -> None:
        """Writes a text and tells it."""
        if self._sampler is None:
            self._sampler = self._compiled()
        with self._progress.pause("sampling"):
            tokens = until_end(np.asarray(self._sampler(state.weights)).tolist(), self._tokenizer.eos)
            text = self._prompt + self._tokenizer.decode(tokens)
            self._progress.sampled(step, prompt=self._prompt, text=text)
