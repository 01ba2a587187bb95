"""Exports the finished model in the Hugging Face format; all processes write after the last step."""

import functools
import itertools
import logging
import threading
import time
from collections.abc import Callable

import jax

from tpujob_trainer.config.resolve import ResolvedConfig
from tpujob_trainer.config.schema import BLOCK, ExportConfig
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.lora import LoraModel
from tpujob_trainer.model.shape import CustomShape, described
from tpujob_trainer.model.weights.adapter import export_adapter
from tpujob_trainer.model.weights.adapter_config import ADAPTER_CONFIG
from tpujob_trainer.model.weights.companions import Companions, read_companions
from tpujob_trainer.model.weights.config_json import config_json
from tpujob_trainer.model.weights.custom_weights import DESCRIPTION, export_custom_weights
from tpujob_trainer.model.weights.export import export_weights
from tpujob_trainer.model.weights.safetensors import SAFETENSORS_DTYPES
from tpujob_trainer.model.weights.shards import tried
from tpujob_trainer.session.session import Session
from tpujob_trainer.storage.errors import unusable
from tpujob_trainer.storage.filesystems import located
from tpujob_trainer.train.optimizer import averaged_weights
from tpujob_trainer.train.save_policy import StepFlags
from tpujob_trainer.train.step import TrainState
from tpujob_trainer.train.step_logger import Progress
from tpujob_trainer.values.errors import ConfigurationError, TrainerError, from_dict, to_dict

FOLDER = "export"
"""In the checkpoint directory."""
LIMIT_SECONDS = 3600.0
"""Limit for the slowest process to write its files."""
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 2.0, 60.0
"""The wait between two tries, which doubles each time."""

logger = logging.getLogger(__name__)


def current(state: TrainState) -> Weights:
    """The weights of a state."""
    return state.weights


def averaged(state: TrainState) -> Weights:
    """The running average of the weights, which the optimizer keeps."""
    average: Weights | None = averaged_weights(state.optimizer)
    assert average is not None  # the configuration requires emaDecay
    return average


def folder_of(config: ExportConfig, directory: str | None) -> str:
    """The folder for the exported files.

    Raises:
        ConfigurationError: neither the field nor a checkpoint directory names it.
    """
    if config.directory:
        return config.directory
    if directory is None:
        raise ConfigurationError(f"{BLOCK}.export.directory: required without spec.checkpointDir; name a folder")
    return f"{directory.rstrip('/')}/{FOLDER}"


class Exporter:
    """Writes the model of a run; all processes must make the same calls."""

    def __init__(self, run: ResolvedConfig, config: ExportConfig, model: Model, session: Session) -> None:
        """Nothing is read or written yet.

        Raises:
            ConfigurationError: there is no folder to write to.
        """
        self._run, self._config, self._model, self._session = run, config, model, session
        self._folder = folder_of(config, session.directory)

    def companions(self) -> Companions:
        """The other files of the source model; checks that transformers has such a model.

        Raises:
            ConfigurationError: transformers has no such model.
            NotFoundError: the files cannot be read any more.
        """
        run = self._run
        if isinstance(run.model, CustomShape):
            return Companions()
        companions = read_companions(run.weights_from, run.data)
        if not self._is_adapter():
            config_json(run.model, dtype="", max_positions=run.sequence_length, source=companions.config)
        return companions

    def write(self, step: int, state: TrainState, companions: Companions) -> None:
        """Writes the model of a state, which is in a checkpoint already.

        If storage cannot be reached or is full, all processes try again, for `checkpoint.failAfterSeconds`.

        Raises:
            NotFoundError: the folder cannot be written to.
            TrainerError: all tries have failed; another attempt of the run writes the model.
        """
        coordination = self._session.runtime.coordination
        until = time.monotonic() + self._run.checkpoint.fail_after_seconds
        for number in itertools.count():
            try:
                self._write(f"{step}/{number}", step, state, companions)
            except TrainerError as error:
                if type(error) is not TrainerError:  # another try would end the same way
                    raise
                wait = min(FIRST_WAIT_SECONDS * 2**number, LONGEST_WAIT_SECONDS)
                name = f"export-again/{step}/{number}"
                has_time = functools.partial(_is_before, until - wait)
                if not coordination.lead_decides(name, has_time, limit_seconds=LIMIT_SECONDS):
                    raise
                logger.warning("The model is not written (%s); all of it is tried again in %.0f s", error, wait)
                self._session.report.tick()
                threading.Event().wait(wait)
            else:
                return

    def _write(self, name: str, step: int, state: TrainState, companions: Companions) -> None:
        run, config, model = self._run, self._config, self._model

        def agree(what: str, trouble: Exception | None) -> None:
            self._agree(f"{what}/{name}", trouble)

        if isinstance(model, LoraModel) and not config.merged:
            adapter = functools.partial(
                export_adapter, self._folder, model, state.weights, base=run.weights_from, companions=companions
            )
            agree("export-adapter", tried(adapter))
            return
        if isinstance(run.model, CustomShape):
            export_custom_weights(
                self._folder,
                self._weights(state),
                described(run.model),
                step,
                dtype=SAFETENSORS_DTYPES[config.dtype],
                agree=agree,
            )
            return
        export_weights(
            self._folder,
            run.model,
            self._weights(state),
            max_positions=run.sequence_length,
            companions=companions,
            dtype=SAFETENSORS_DTYPES[config.dtype],
            agree=agree,
        )

    def write_if_missing(self, step: int, state: TrainState) -> None:
        """Writes the model unless the folder has one."""

        def is_there() -> bool:
            filesystem, path = located(self._folder)
            try:
                return bool(filesystem.exists(f"{path}/{self._last_file()}"))
            except Exception as error:
                raise unusable(self._folder, error, field=self._field) from error

        if not self._session.runtime.coordination.lead_decides(
            "export/is-there", is_there, limit_seconds=LIMIT_SECONDS
        ):
            self.write(step, state, self.companions())

    def _last_file(self) -> str:
        if isinstance(self._run.model, CustomShape):
            return DESCRIPTION
        return ADAPTER_CONFIG if self._is_adapter() else "config.json"

    def _is_adapter(self) -> bool:
        return self._run.lora is not None and not self._config.merged

    def _weights(self, state: TrainState) -> Weights:
        if isinstance(self._model, LoraModel):
            merged = jax.jit(self._model.merged, out_shardings=self._model.base_shardings)
            weights: Weights = merged(state.weights)
            return weights
        return averaged(state) if self._config.average else current(state)

    @property
    def _field(self) -> str:
        return f"{BLOCK}.export.directory" if self._config.directory else "spec.checkpointDir"

    def _agree(self, name: str, trouble: Exception | None) -> None:
        """An `Agree`: raises the error of the first process that has one on all processes."""
        own = None if trouble is None else to_dict(unusable(self._folder, trouble, field=self._field))
        found = self._session.runtime.coordination.objections(name, own, limit_seconds=LIMIT_SECONDS)
        if found:
            shared = from_dict(found[min(found)])
            shared.is_shared = True
            raise shared


def _is_before(time_limit: float) -> bool:
    return time.monotonic() < time_limit


class ExportHook:
    """Writes the model after the last step; a hook of the loop."""

    every_steps: int | None = None

    def __init__(self, exporter: Exporter, progress: Progress) -> None:
        """Reads the companions now: a model without export is refused before any step, and the source may be deleted.

        Raises:
            ConfigurationError: transformers has no such model.
            NotFoundError: the other files of the source model cannot be read any more.
        """
        self._exporter, self._progress = exporter, progress
        self._companions = exporter.companions()

    def run(self, step: int, state: TrainState, get_flags: Callable[[], StepFlags]) -> None:
        """Writes the model."""
        with self._progress.pause("saving"):
            self._exporter.write(step, state, self._companions)
