"""User-defined callbacks that get the model during training, on all processes, between two steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tpujob_trainer.config.schema import BLOCK, CallbackConfig
from tpujob_trainer.errors import ConfigurationError, TrainerError, brief
from tpujob_trainer.model.decoder import Weights
from tpujob_trainer.parsing.references import load_reference
from tpujob_trainer.train.step import TrainState
from tpujob_trainer.train.step_flags import StepFlags
from tpujob_trainer.train.step_logger import Progress

Function = Callable[[int, Weights, Mapping[str, float]], Mapping[str, float] | None]
"""From steps done, weights, and loss, gradient_norm, learning_rate and tokens of the last step to numbers by name."""


class Callback:
    """Calls a user-defined callback; a hook of the loop."""

    def __init__(self, config: CallbackConfig, number: int, progress: Progress) -> None:
        """Creates the callback.

        Args:
            config: Names its class.
            number: Its index in `callbacks`, for messages.
            progress: Has the metrics, and gets the returned numbers.

        Raises:
            ConfigurationError: there is no such class, creating the object fails, or the object is not callable.
        """
        self.every_steps = config.every_steps
        self._name = config.name
        self._field = f"{BLOCK}.callbacks[{number}]"
        self._progress = progress
        self._function = self._made(config.arguments or {})

    def run(self, step: int, state: TrainState, get_flags: Callable[[], StepFlags]) -> None:
        """Calls the callback with the weights after `step` steps.

        Raises:
            TrainerError: it raised an exception, or did not return numbers.
        """
        with self._progress.pause("evaluating"):
            try:
                found = self._function(step, state.weights, self._progress.last_metrics)
            except Exception as error:
                raise TrainerError(
                    f"{self._field}.name: {self._name} raised {brief(error)} after step {step}"
                ) from error
        if found is not None:
            self._progress.called_back(step, self._numbers(step, found))

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
