"""The finished model as files of Hugging Face, written by all processes after the last step."""

from __future__ import annotations

from collections.abc import Callable

import fsspec.core

from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.config.schema import BLOCK, ExportConfig
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.lora import LoraModel
from tpujob_trainer.model.weights.adapter import CONFIG, export_adapter
from tpujob_trainer.model.weights.companions import Companions, read_companions
from tpujob_trainer.model.weights.config_json import config_json
from tpujob_trainer.model.weights.export import export_weights
from tpujob_trainer.train.optimizer import averaged_weights
from tpujob_trainer.train.step import TrainState
from tpujob_trainer.train.step_flags import StepFlags
from tpujob_trainer.train.step_logger import Progress

FOLDER = "export"
"""In the checkpoint directory."""
DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
LIMIT_SECONDS = 3600.0
"""For the slowest process to write its files."""


def current(state: TrainState) -> Weights:
    """The weights themselves."""
    return state.weights


def averaged(state: TrainState) -> Weights:
    """Their running average, which the optimizer keeps."""
    average: Weights | None = averaged_weights(state.optimizer)
    assert average is not None  # the configuration requires emaDecay
    return average


class ExportHook:
    """Writes the model after the last step; a hook of the loop."""

    every_steps: int | None = None

    def __init__(
        self,
        run: ResolvedConfig,
        config: ExportConfig,
        model: Model,
        progress: Progress,
        *,
        directory: str | None,
        runtime: Runtime,
    ) -> None:
        """Put together; nothing is written yet.

        Raises:
            ConfigurationError: there is no folder to write to, or transformers has no such model.
            NotFoundError: the files beside the source's weights may not be read any more.
        """
        self._run, self._config, self._model, self._progress, self._runtime = run, config, model, progress, runtime
        self._folder = folder_of(config, directory)
        self._companions = _companions(run)

    def run(self, step: int, state: TrainState, get_flags: Callable[[], StepFlags]) -> None:
        """Writes it."""
        with self._progress.pause("saving"):
            _export(
                self._run,
                self._config,
                self._model,
                self._folder,
                step,
                state,
                self._runtime,
                self._companions,
            )


def export_if_missing(
    run: ResolvedConfig,
    config: ExportConfig,
    model: Model,
    step: int,
    state: TrainState,
    *,
    directory: str | None,
    runtime: Runtime,
) -> None:
    """Writes the model unless the folder holds one; all processes call it alike."""
    folder = folder_of(config, directory)

    def is_there() -> bool:
        filesystem, path = fsspec.core.url_to_fs(folder)
        return bool(filesystem.exists(f"{path}/{CONFIG if run.lora else 'config.json'}"))

    if not runtime.coordination.lead_decides("export/is-there", is_there, limit_seconds=LIMIT_SECONDS):
        _export(run, config, model, folder, step, state, runtime, _companions(run))


def folder_of(config: ExportConfig, directory: str | None) -> str:
    """Where the files go.

    Raises:
        ConfigurationError: neither the field nor a checkpoint directory says it.
    """
    if config.directory:
        return config.directory
    if directory is None:
        raise ConfigurationError(f"{BLOCK}.export.directory: required without spec.checkpointDir; name a folder")
    return f"{directory.rstrip('/')}/{FOLDER}"


def _companions(run: ResolvedConfig) -> Companions:
    """Read before training: what cannot be exported is said before any step, and the source may go meanwhile."""
    companions = Companions() if run.lora else read_companions(run.weights_from, run.data)
    if run.lora is None:
        config_json(run.model, dtype="", max_positions=run.sequence_length, source=companions.config)
    return companions


def _export(
    run: ResolvedConfig,
    config: ExportConfig,
    model: Model,
    folder: str,
    step: int,
    state: TrainState,
    runtime: Runtime,
    companions: Companions,
) -> None:
    if isinstance(model, LoraModel):
        export_adapter(folder, model, state.weights, base=run.weights_from)
        runtime.coordination.barrier(f"export-adapter/{step}", limit_seconds=LIMIT_SECONDS)
        return
    export_weights(
        folder,
        run.model,
        averaged(state) if config.average else current(state),
        max_positions=run.sequence_length,
        companions=companions,
        dtype=DTYPES[config.dtype],
        barrier=lambda name: runtime.coordination.barrier(f"{name}/{step}", limit_seconds=LIMIT_SECONDS),
    )
