"""Sample texts of the model during training, at intervals between two steps; all processes compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tpujob_trainer.data import Tokenizer
from tpujob_trainer.data.text.stop_strings import before_any
from tpujob_trainer.train.generate import Prompt, Sampler, padded, until_end
from tpujob_trainer.train.step import TrainState
from tpujob_trainer.train.step_flags import StepFlags
from tpujob_trainer.train.step_logger import Progress


class Samples:
    """Writes samples with the current weights; a hook of the loop."""

    def __init__(
        self,
        compiled: Callable[[], Sampler],
        tokenizer: Tokenizer,
        progress: Progress,
        *,
        prompts: Sequence[Prompt],
        ends: Sequence[int],
        stop: Sequence[str],
        every_steps: int | None,
    ) -> None:
        """`compiled` makes the sampler, at once if it is needed before the last step; `ends` are token IDs."""
        self.every_steps = every_steps
        self._compiled = compiled
        self._sampler = compiled() if every_steps else None
        self._tokenizer = tokenizer
        self._progress = progress
        self._prompts = prompts
        self._longest = max(len(tokens) for _, tokens in prompts)
        self._stop, self._ends = stop, ends

    def run(self, step: int, state: TrainState, get_flags: Callable[[], StepFlags]) -> None:
        """Writes and reports a text for each prompt."""
        if self._sampler is None:
            self._sampler = self._compiled()
        with self._progress.pause("sampling"):
            for prompt, tokens in self._prompts:
                written = np.asarray(self._sampler(state.weights, *padded(tokens, self._longest))).tolist()
                text = self._tokenizer.decode(until_end(written, self._ends), with_special=True)
                self._progress.sampled(step, prompt=prompt, text=prompt + before_any(self._stop, text))
