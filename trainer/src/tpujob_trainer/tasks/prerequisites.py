"""Finds simple mistakes in a job quickly and without devices: data, tokenizer, checkpoint directory, memory."""

import errno
import fcntl
import functools
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tpujob_contract import ExitCode
from tpujob_contract.job_facts import Place, Problem
from tpujob_trainer.checkpoint.lock import LOCK, OWNER, PROBE_BYTES, model_differences, owner_in, owner_problem
from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.data.inspection import DataWarnings
from tpujob_trainer.data.manifest.listing import list_source
from tpujob_trainer.data.text.tokenizer_files import load_tokenizer
from tpujob_trainer.model.shape import TRAINING_ONLY
from tpujob_trainer.model.weights.adapter_config import check_adapter
from tpujob_trainer.storage import is_local
from tpujob_trainer.storage.errors import unusable
from tpujob_trainer.storage.retrying import StorageFailedError
from tpujob_trainer.telemetry.process import host_memory_bytes
from tpujob_trainer.train.arithmetic import state_bytes_per_device
from tpujob_trainer.values.errors import ANOTHER_RUN, ConfigurationError, TrainerError
from tpujob_trainer.values.from_mapping import camel_case
from tpujob_trainer.values.references import MissingModuleError, load_reference

logger = logging.getLogger(__name__)

FREE_TO_CHANGE = frozenset({*TRAINING_ONLY, "remat", "compute_dtype"})
"""Fields of a model that may change when a run is resumed."""


def check_prerequisites(
    config: TrainerConfig,
    *,
    checkpoint_dir: str | None,
    owner: str,
    place: Place,
    is_run: bool,
    has_all_packages: bool = True,
) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """The problems of a job that can be seen from this machine, and the warnings about its data.

    Args:
        config: As the user wrote it.
        checkpoint_dir: Of the job; None: it has none.
        owner: The job as "namespace/name".
        place: Where it runs.
        is_run: Whether all processes of the job run on this machine, with its storage and memory.
        has_all_packages: Whether the launchers install no packages, so that imports must work on this machine.
    """
    problems: list[Problem] = []
    warnings = DataWarnings()
    with warnings:
        for field, source in config.data.sources():
            if is_run or (source.path is not None and is_local(source.path)):
                _try(problems, functools.partial(list_source, source, field))
        tokenizer = None
        if is_run or is_local(config.data.tokenizer or "bytes"):
            tokenizer = _try(problems, lambda: load_tokenizer(config.data))
    if config.lora is not None and (adapter := config.lora.from_) is not None and (is_run or is_local(adapter)):
        _try(problems, functools.partial(check_adapter, adapter, config.lora))
    _check_own_code(config, problems, must_be_here=is_run and has_all_packages)
    run = None
    if config.task == "pretrain" and config.model.from_ is None and config.model.custom is None:
        vocabulary = tokenizer.vocab_size if tokenizer else None
        run = _try(problems, lambda: _resolved(config, vocabulary, place)) if vocabulary else None
    if checkpoint_dir is not None and is_local(checkpoint_dir):
        problems += _directory_problem(Path(checkpoint_dir), owner, config, run)
    if run is not None and is_run and place.platform == "cpu":
        problems += _memory_problem(state_bytes_per_device(run) * place.devices_here, place.devices_here)
    return tuple(problems), tuple(warnings.lines)


def _memory_problem(needed: float, devices: int) -> Iterator[Problem]:
    if needed <= (memory := host_memory_bytes()):
        return
    yield Problem(
        f"{BLOCK}.model: weights and optimizer need {needed / 1e9:,.1f} GB on {devices} devices, all of this machine, "
        f"which has {memory / 1e9:,.1f} GB; take a smaller model, such as {{preset: tiny}}",
        ExitCode.CONFIGURATION,
    )


def _check_own_code(config: TrainerConfig, problems: list[Problem], *, must_be_here: bool) -> None:
    """Adds problems with importing the block's `module:name` references; a missing module may exist in pods."""
    for text, field in _references(config):
        try:
            load_reference(text, field)
        except MissingModuleError as error:
            if must_be_here:
                problems.append(Problem(str(error), error.exit_code))
        except ConfigurationError as error:
            problems.append(Problem(str(error), error.exit_code))


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


def _resolved(config: TrainerConfig, vocabulary: int, place: Place) -> ResolvedConfig:
    return resolve(
        config, num_devices=place.devices, vocabulary=vocabulary, platform=place.platform, slices=place.slices
    )


def _try[T](problems: list[Problem], question: Callable[[], T]) -> T | None:
    """The result of `question`; None: it failed. An error is added to the problems, unless storage was out of reach."""
    try:
        return question()
    except (StorageFailedError, OSError) as error:
        # An OSError is from a storage client. The run itself tries again, for longer.
        logger.debug("Not seen from here: %s", error)
    except TrainerError as error:
        problems.append(Problem(str(error), error.exit_code))
    return None


def _directory_problem(
    directory: Path, owner: str, config: TrainerConfig, run: ResolvedConfig | None
) -> Iterator[Problem]:
    """The problem of a local directory: file type, permissions, owner, a full disk, a live run, another model.

    Only the first is reported: each makes the next ones pointless.
    """
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    field, adopt = "spec.checkpointDir", config.checkpoint.adopt
    if not existing.is_dir():
        cause = f"{existing} is a file" if existing != directory else "it is a file"
        yield Problem(f"{field}: {directory} is not a directory ({cause}); name another", ExitCode.CONFIGURATION)
    elif not os.access(existing, os.W_OK | os.X_OK):
        cause = f"no permission in {existing}"
        yield Problem(
            f"{field}: {directory} cannot be written ({cause}); name a directory that you may write to",
            ExitCode.NOT_FOUND,
        )
    elif (directory / OWNER).is_file() and (
        problem := owner_problem(str(directory), owner_in((directory / OWNER).read_bytes()), owner, adopt)
    ):
        yield Problem(problem, ExitCode.CONFIGURATION)
    elif config.task != "pretrain" and _is_full(existing):  # a training first deletes what was left of saves
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield Problem(str(unusable(str(directory), full)), TrainerError.exit_code)
    elif (holder := _holder(directory / LOCK)) is not None:
        way_out = "end it first (Ctrl-C in its `tpujob run`, which saves), or use another directory"
        yield Problem(f"{field}: another run is writing to {directory}: {holder}; {way_out}", ExitCode.CONFIGURATION)
    elif run is not None and (differences := _differences(directory, run)):
        stored = f"the checkpoints in {directory} are of another model; put it back, or {ANOTHER_RUN}"
        yield Problem(f"{BLOCK}.model: {'; '.join(differences)}: {stored}", ExitCode.CONFIGURATION)


def _is_full(folder: Path) -> bool:
    """Whether a disk is full: each worker would start, compile and fail there as often as it may crash."""
    disk = os.statvfs(folder)
    return disk.f_blocks > 0 and disk.f_bfree * disk.f_frsize < PROBE_BYTES


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
    from tpujob_trainer.checkpoint import layout  # its libraries take time, and most checks find no checkpoint

    steps = layout.committed(str(directory))
    if not steps:
        return []
    stored = layout.metadata_of(str(directory), steps[0]).get("configuration") or {}
    model = stored.get("model")
    if not isinstance(model, dict):
        return []
    now = json.loads(run.as_json())["model"]
    return model_differences(model, now, frozenset(map(camel_case, FREE_TO_CHANGE)))
