"""Finds simple mistakes in a job quickly and without devices: data, tokenizer, checkpoint directory, memory.

    python -m tpujob_trainer.tasks.prerequisites '{"trainer": {…}, "checkpointDir": "…", "owner": "team/llama"}'

Writes one JSON object to stdout: `problems`, which would end a run, each with its exit code; `warnings`; `unseen`, what
cannot be reached from here; and `state_bytes`. With `figures` in the request, those of the job, too. `tpujob run` and
`tpujob check` start it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tpujob_contract import ExitCode
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.lock import LOCK, OWNER, model_differences, owner_in, owner_problem
from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import BLOCK, TrainerConfig, parse_config
from tpujob_trainer.data.manifest.listing import list_source
from tpujob_trainer.data.text.tokenizer_files import load_tokenizer
from tpujob_trainer.distributed.exit import programs
from tpujob_trainer.errors import ANOTHER_RUN, ConfigurationError, NotFoundError, TrainerError, message
from tpujob_trainer.errors.programs import answer, log_to_stderr
from tpujob_trainer.model.shape import TRAINING_ONLY
from tpujob_trainer.model.weights.adapter_config import check_adapter
from tpujob_trainer.parsing.references import MissingModuleError, load_reference
from tpujob_trainer.storage import is_local
from tpujob_trainer.storage.remote import RETRYING
from tpujob_trainer.storage.retrying import StorageFailedError
from tpujob_trainer.tasks.extraction_bounds import bounds
from tpujob_trainer.telemetry.process import host_memory_bytes
from tpujob_trainer.train.arithmetic import arithmetic, state_bytes_per_device

REACH_SECONDS = 2.0
"""Limit for storage to answer."""
FREE_TO_CHANGE = frozenset({*TRAINING_ONLY, "remat", "compute_dtype"})
"""Fields of a model that may change when a run is resumed."""


@dataclasses.dataclass
class Found:
    """The findings about a job."""

    problems: list[tuple[str, int]] = dataclasses.field(default_factory=list)
    """Each with its exit code."""
    unseen: list[str] = dataclasses.field(default_factory=list)


def look(
    config: TrainerConfig,
    *,
    checkpoint_dir: str | None,
    owner: str,
    place: Mapping[str, Any],
    is_run: bool,
    has_all_packages: bool = True,
) -> dict[str, Any]:
    """The findings that are possible from this machine, as JSON values.

    Args:
        config: As the user wrote it.
        checkpoint_dir: Of the job; None: it has none.
        owner: The job as "namespace/name".
        place: `devices`, `slices` and `platform` of all processes, and `devicesHere`, those of this machine.
        is_run: Whether all processes of the job run on this machine, with its storage and memory.
        has_all_packages: Whether the launchers install no packages, so that imports must work on this machine.
    """
    found = Found()
    with _Warnings() as warnings:
        for field, source in config.data.sources():
            if is_run or (source.path is not None and is_local(source.path)):
                _try(found, functools.partial(list_source, source, field))
        tokenizer = None
        if is_run or is_local(config.data.tokenizer or "bytes"):
            tokenizer = _try(found, lambda: load_tokenizer(config.data))
    if config.lora is not None and (adapter := config.lora.from_) is not None and (is_run or is_local(adapter)):
        _try(found, functools.partial(check_adapter, adapter, config.lora))
    _look_at_own_code(config, found, must_be_here=is_run and has_all_packages)
    run = None
    if config.task == "pretrain" and config.model.from_ is None and config.model.custom is None:
        vocabulary = tokenizer.vocab_size if tokenizer else None
        run = _try(found, lambda: _resolved(config, vocabulary, place)) if vocabulary else None
    if checkpoint_dir is not None and is_local(checkpoint_dir) and config.task == "pretrain":
        problem = _directory(Path(checkpoint_dir), owner, config.checkpoint.adopt, run)
        found.problems += [] if problem is None else [problem]
    state_bytes = None if run is None else state_bytes_per_device(run) * place["devicesHere"]
    is_in_memory = is_run and place["platform"] == "cpu"
    if is_in_memory and state_bytes is not None and state_bytes > (memory := host_memory_bytes()):
        needed = f"weights and optimizer need {state_bytes / 1e9:,.1f} GB on {place['devicesHere']} devices"
        here = f"all of this machine, which has {memory / 1e9:,.1f} GB; take a smaller model, such as {{preset: tiny}}"
        found.problems.append((f"{BLOCK}.model: {needed}, {here}", ExitCode.CONFIGURATION))
    return {
        "problems": [{"message": message, "exit_code": int(code)} for message, code in found.problems],
        "unseen": found.unseen,
        "warnings": warnings.lines,
        "state_bytes": state_bytes,
    }


def _look_at_own_code(config: TrainerConfig, found: Found, *, must_be_here: bool) -> None:
    """Adds problems with importing the block's `module:name` references; a missing module may exist in pods."""
    for text, field in _references(config):
        try:
            load_reference(text, field)
        except MissingModuleError as error:
            if must_be_here:
                found.problems.append((str(error), error.exit_code))
        except ConfigurationError as error:
            found.problems.append((str(error), error.exit_code))


def _references(config: TrainerConfig) -> Iterator[tuple[str, str]]:
    """Each reference and its field."""
    evaluation = config.evaluation
    named = [
        ("model.custom", config.model.custom),
        ("loss", config.loss),
        ("optimizer.custom", config.optimizer.custom),
        *((f"callbacks[{number}].name", each.name) for number, each in enumerate(config.callbacks)),
        *(
            (f"evaluation.metrics[{number}].name", each.name)
            for number, each in enumerate(evaluation.metrics if evaluation else ())
        ),
    ]
    yield from ((text, f"{BLOCK}.{field}") for field, text in named if text is not None)
    for data, where in ((config.data, f"{BLOCK}.data"), (evaluation and evaluation.data, f"{BLOCK}.evaluation.data")):
        for field, source in data.sources() if data else ():
            if source.custom is not None:
                yield source.custom, f"{field.replace(f'{BLOCK}.data', where)}.custom"


def _resolved(config: TrainerConfig, vocabulary: int, place: Mapping[str, Any]) -> ResolvedConfig:
    return resolve(
        config,
        num_devices=place["devices"],
        vocabulary=vocabulary,
        platform=place["platform"],
        slices=place["slices"],
    )


def _try[T](found: Found, question: Callable[[], T]) -> T | None:
    """The result of `question`; None: it failed. An error is added to the problems, unreachable storage to `unseen`."""
    try:
        return question()
    except StorageFailedError as error:
        found.unseen.append(str(error))
    except TrainerError as error:
        found.problems.append((str(error), error.exit_code))
    except OSError as error:
        # From a storage client: the run itself tries again, for longer.
        found.unseen.append(message(error))
    return None


def _directory(directory: Path, owner: str, adopt: str | None, run: ResolvedConfig | None) -> tuple[str, int] | None:
    """The problem of a local directory and its exit code: file type, permissions, owner, a live run, another model.

    Only the first is reported: each makes the next ones pointless. None: there is none.
    """
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    field = "spec.checkpointDir"
    if not existing.is_dir():
        cause = f"{existing} is a file" if existing != directory else "it is a file"
        return f"{field}: {directory} is not a directory ({cause}); name another", ExitCode.CONFIGURATION
    if not os.access(existing, os.W_OK | os.X_OK):
        cause = f"no permission in {existing}"
        problem = f"{field}: {directory} cannot be written ({cause}); name a directory that you may write to"
        return problem, ExitCode.NOT_FOUND
    if (directory / OWNER).is_file():
        present = owner_in((directory / OWNER).read_bytes())
        if (problem_or_none := owner_problem(str(directory), present, owner, adopt)) is not None:
            return problem_or_none, ExitCode.CONFIGURATION
    if (holder := _holder(directory / LOCK)) is not None:
        way_out = "end it first (Ctrl-C in its `tpujob run`, which saves), or use another directory"
        return f"{field}: another run is writing to {directory}: {holder}; {way_out}", ExitCode.CONFIGURATION
    if run is not None and (differences := _differences(directory, run)):
        stored = f"the checkpoints in {directory} are of another model; put it back, or {ANOTHER_RUN}"
        return f"{BLOCK}.model: {'; '.join(differences)}: {stored}", ExitCode.CONFIGURATION
    return None


def _holder(lock: Path) -> str | None:
    """The holder of a lock; None: it is free, or cannot be read."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 256).decode(errors="replace").strip() or "a process that has not said its name"
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def _differences(directory: Path, run: ResolvedConfig) -> list[str]:
    """The differences between the model of the newest checkpoint and that of `run`."""
    steps = layout.committed(str(directory))
    if not steps:
        return []
    stored = layout.metadata_of(str(directory), steps[0]).get("configuration") or {}
    model = stored.get("model")
    if not isinstance(model, dict):
        return []
    now = json.loads(run.as_json())["model"]
    ignored = frozenset(_camel(name) for name in FREE_TO_CHANGE)
    return model_differences(model, now, ignored)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


class _Warnings(logging.Handler):
    """A context manager that collects the warnings of the data code."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._logger = logging.getLogger("tpujob_trainer.data")

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def __enter__(self) -> _Warnings:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)


def figures(config: TrainerConfig, place: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a run or an extraction, or what is missing on this machine and may exist in pods.

    Args:
        config: As the user wrote it.
        place: As `arithmetic` takes it; an extraction's figures are the same everywhere.

    Raises:
        ConfigurationError: as `arithmetic` and `bounds`.
    """
    try:
        return bounds(config) if config.task == "extract" else arithmetic(config, **place)
    except NotFoundError as error:
        return {"unknown": str(error)}  # of model.from, which nothing else here reads
    except MissingModuleError as error:
        return {"missing_module": str(error)}


def main() -> int:
    """Answers the request in the first argument; returns the exit code."""
    log_to_stderr(logging.CRITICAL)
    asked = json.loads(sys.argv[1])
    RETRYING.limit_seconds = REACH_SECONDS

    def found() -> dict[str, Any]:
        config = parse_config(asked["trainer"])
        sums = {} if asked.get("figures") is None else {"figures": figures(config, asked["figures"])}
        return sums | look(
            config,
            checkpoint_dir=asked.get("checkpointDir"),
            owner=asked["owner"],
            place=asked["place"],
            is_run=asked["isRun"],
            has_all_packages=asked["hasAllPackages"],
        )

    return answer(found)


if __name__ == "__main__":
    programs.end(main())
