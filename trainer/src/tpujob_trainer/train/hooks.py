"""Hooks of the loop, between two steps on all processes: sample texts, and user-defined callbacks."""

import contextlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tpujob_trainer.config.schema import BLOCK, CallbackConfig
from tpujob_trainer.data import Tokenizer
from tpujob_trainer.data.text.stop_strings import before_any
from tpujob_trainer.distributed.exit.watchdog import main_thread, remarks
from tpujob_trainer.distributed.kv_store import Coordination, CoordinationError
from tpujob_trainer.model.decoder import Weights
from tpujob_trainer.train.generate import Prompt, Sampler, padded, until_end
from tpujob_trainer.train.save_policy import StepFlags
from tpujob_trainer.train.step import TrainState
from tpujob_trainer.train.step_logger import Progress
from tpujob_trainer.values.errors import ConfigurationError, TrainerError, brief
from tpujob_trainer.values.references import load_reference

logger = logging.getLogger(__name__)


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


Function = Callable[[int, Weights, Mapping[str, float]], Mapping[str, float] | None]
"""From steps done, weights, and loss, gradient_norm, learning_rate and tokens of the last step to numbers by name."""


LATE_SECONDS = 10.0
"""Time after which a call is compared with those of other processes."""
POLL_SECONDS = 1.0


class Callback:
    """Calls a user-defined callback; a hook of the loop."""

    def __init__(self, config: CallbackConfig, number: int, progress: Progress, coordination: Coordination) -> None:
        """Creates the callback.

        Args:
            config: Names its class.
            number: Its index in `callbacks`, for messages.
            progress: Has the metrics, and gets the returned numbers.
            coordination: With the other processes, which make the same calls.

        Raises:
            ConfigurationError: there is no such class, creating the object fails, or the object is not callable.
        """
        self.every_steps = config.every_steps
        self._name = config.name
        self._field = f"{BLOCK}.callbacks[{number}]"
        self._progress = progress
        self._coordination = coordination
        self._calls = itertools.count()
        self._function = self._made(config.arguments or {})

    def run(self, step: int, state: TrainState, get_flags: Callable[[], StepFlags]) -> None:
        """Calls the callback with the weights after `step` steps.

        Raises:
            TrainerError: it raised an exception, or did not return numbers.
        """
        with self._progress.pause("evaluating"):
            try:
                with self._compared():
                    found = self._function(step, state.weights, self._progress.last_metrics)
            except Exception as error:
                raise TrainerError(
                    f"{self._field}.name: {self._name} raised {brief(error)} after step {step}"
                ) from error
        if found is not None:
            self._progress.called_back(step, self._numbers(step, found))

    @contextlib.contextmanager
    def _compared(self) -> Iterator[None]:
        """Warns if a call waits for a computation, and where, while another process has returned from its call."""
        talk, key = self._coordination, f"{self._field}/{next(self._calls)}"
        if talk.num_processes == 1:
            yield
            return
        ended = threading.Event()

        def watch() -> None:
            with contextlib.suppress(CoordinationError):
                other: str | None = None
                where, waits = "", False
                while not ended.wait(POLL_SECONDS if waits else LATE_SECONDS) and not (other and waits):
                    where, waits = main_thread()
                    other = talk.look_for(key, limit_seconds=POLL_SECONDS)
                if other and not ended.is_set():
                    remarks.append(other)
                    logger.warning(
                        "%s.name: %s: process %d waits for a computation at %s, and %s; every process makes those that "
                        "need all devices: take them out of the condition",
                        self._field, self._name, talk.process_id, where, other,
                    )  # fmt: skip

        threading.Thread(target=watch, name="callback", daemon=True).start()
        try:
            yield
        finally:
            ended.set()
            remarks.clear()
        if talk.process_id < 2:  # enough for each to know of another one; the first to say it is kept
            with contextlib.suppress(CoordinationError):
                talk.set(key, f"process {talk.process_id} has returned")

    def _made(self, arguments: Mapping[str, Any]) -> Function:
        make = load_reference(self._name, f"{self._field}.name")
        try:
            made = make(**arguments)
        except Exception as error:
            raise ConfigurationError(
                f"{self._field}.arguments: {self._name}({', '.join(arguments)}) failed: {brief(error)}"
            ) from error
        if not callable(made):
            raise ConfigurationError(
                f"{self._field}.name: {self._name} gives a {type(made).__name__}, which cannot be called; give it "
                "__call__(self, step, weights, metrics)"
            )
        function: Function = made
        return function

    def _numbers(self, step: int, found: Any) -> dict[str, float]:
        try:
            return {str(name): float(value) for name, value in found.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise TrainerError(
                f"{self._field}.name: {self._name} returned a {type(found).__name__} after step {step}; return numbers "
                "by name, as in {'norm': 1.5}, or nothing"
            ) from error
