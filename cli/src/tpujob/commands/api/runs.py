"""Runs on this machine, and the metrics and checkpoints of a run, from Python; jobs as programs pass them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpujob.job.job_file import read_document
from tpujob.job.questions.trainer_program import Program, ask
from tpujob.local import runs
from tpujob.local.placement import HostOptions, placed_document, placed_file
from tpujob.local.run import run_job
from tpujob.output.errors import CommandError
from tpujob.output.words import absolute
from tpujob_contract import ExitCode
from tpujob_resource.models.job import TpuTrainingJob

if TYPE_CHECKING:
    import pandas as pd


DEFAULT_DIRECTORY = ".tpujob"
SOURCE = Path("job")
"""The file name in messages about a dict."""


@dataclass(frozen=True)
class Run:
    """A run on this machine that has ended."""

    name: str
    phase: str
    """Succeeded, Suspended (stopped by Ctrl-C or SIGTERM, continues when run again) or Failed."""
    exit_code: int
    """With the same meaning as that of `tpujob run`."""
    summary: Mapping[str, Any]
    """The summary that ends `tpujob run -o json`: step, losses, checkpoint, message and more."""
    checkpoint_dir: str
    """Where its checkpoints and metrics are."""
    log_files: tuple[Path, ...]
    """One for each process, in order of process id."""

    @property
    def metrics(self) -> pd.DataFrame:
        """Its metrics by step, including those of earlier runs that it continued.

        Raises:
            CommandError: it has made no step, runs no trainer, or pandas is not installed.
        """
        return read_metrics(self.checkpoint_dir)

    @property
    def checkpoints(self) -> list[dict[str, Any]]:
        """Its committed checkpoints, newest first: step, committed_time, bytes, loss, metrics and more.

        Raises:
            CommandError: it has saved none.
        """
        return read_checkpoints(self.checkpoint_dir)


class RunFailed(CommandError):  # noqa: N818 - reads as what happened, as JobFailed does
    """A run that ended with an error."""

    def __init__(self, run: Run) -> None:
        cause = run.summary["cause"]
        message = f"{run.name}: {run.summary['message']}"
        super().__init__(message, *([cause] if cause else []), exit_code=run.exit_code)
        self.run = run


def run(
    job: str | Path | Mapping[str, Any],
    arguments: Sequence[str] = (),
    *,
    set: Mapping[str, Any] | None = None,  # noqa: A002 - the option is called --set
    accelerator: str | None = None,
    cpu: bool = False,
    restarts: int = 0,
    directory: str | Path = DEFAULT_DIRECTORY,
    code: str | Path | None = None,
    max_processes: int = 16,
) -> Run:
    """Runs a job or a program on this machine to its end, as `tpujob run` does, and prints its progress.

    Ctrl-C, or the interrupt of a notebook's kernel, saves and stops: the returned run is Suspended, and the same call
    continues it.

    Args:
        job: The file of a TpuTrainingJob, its content as a dict, or a Python program (a file name in `.py`).
        arguments: For a program.
        set: Fields to set: `{"spec.trainer.steps": 100}`; None removes one.
        accelerator: For a program: `cpu:HOSTSxDEVICES`, or a TPU type to rehearse.
        cpu: Whether CPU devices stand in for TPU chips, even if the machine has some.
        restarts: Run again after a crash, so many times without a newer checkpoint.
        directory: Where logs go, and checkpoints unless the job names a place.
        code: Folder of your code, packed as for pods.
        max_processes: A job with more is refused.

    Returns:
        The run, Succeeded or Suspended.

    Raises:
        CommandError: before anything was started: a wrong field, or something is missing.
        RunFailed: the run ended with an error; its `run` has logs, numbers and checkpoints.
        RuntimeError: this is not the main thread, the only one that Python lets handle Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("tpujob.run: call it from the main thread, the only one that Ctrl-C can reach")
    settings, options = settings_of(set), HostOptions(cpu=cpu)
    if not isinstance(job, Mapping):
        placed = placed_file(Path(job), arguments, accelerator, settings, options)
    elif accelerator is not None or arguments:
        raise CommandError("accelerator, arguments: go with a program; a job has its own in spec")
    else:
        placed = placed_document(*document_of(job), settings, options, again="the same call")
    exit_code, summary = run_job(
        placed,
        directory=Path(directory),
        max_processes=max_processes,
        code=None if code is None else Path(code),
        restarts=restarts,
    )
    ended = _ended(placed.job, exit_code, summary, Path(directory))
    if exit_code not in (ExitCode.FINISHED, ExitCode.STOPPED):
        raise RunFailed(ended)
    return ended


def _ended(job: TpuTrainingJob, exit_code: int, summary: Mapping[str, Any], directory: Path) -> Run:
    root = directory.absolute() / (job.metadata.namespace or "default") / job.metadata.name
    return Run(
        name=job.metadata.name,
        phase=summary["phase"],
        exit_code=exit_code,
        summary=summary,
        checkpoint_dir=absolute(job.spec.checkpoint_dir or str(root / "checkpoints")),
        log_files=tuple(runs.newest(root).logs),
    )


def read_metrics(directory: str) -> pd.DataFrame:
    """The metrics of a run by step: `train/loss`, `train/tokens_per_second` and the others that trackers get.

    Args:
        directory: The job's `spec.checkpointDir`, a path or an address of a bucket.

    Returns:
        A row for each recorded step, indexed by `step`; `time` is in UTC. A metric that a step lacks is NaN.

    Raises:
        CommandError: the directory has no metrics, or cannot be read from here; or pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise CommandError(
            "metrics: needs pandas, which is not installed; `pip install pandas`", exit_code=ExitCode.NOT_FOUND
        ) from error
    rows = ask(Program.RUN_REPORT, {"rows_of": directory})["rows"]
    frame = pd.DataFrame(rows).astype({"step": int}).set_index("step")
    frame["time"] = pd.to_datetime(frame["time"], unit="s", utc=True)
    return frame


def read_checkpoints(directory: str) -> list[dict[str, Any]]:
    """The committed checkpoints, newest first, as `tpujob checkpoint ls -o json` lists them.

    Raises:
        CommandError: the directory is not that of a run, or cannot be read from here.
    """
    found: list[dict[str, Any]] = ask(Program.CHECKPOINTS, directory)["checkpoints"]
    return found


def document_of(job: str | Path | Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    """The resource, and its file name for messages.

    Args:
        job: The file of a TpuTrainingJob, or its content.

    Raises:
        CommandError: no such file, not one TpuTrainingJob, or a value that JSON does not have.
    """
    if not isinstance(job, Mapping):
        return read_document(Path(job)), Path(job)
    try:
        document: dict[str, Any] = json.loads(json.dumps(job, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise CommandError(f"job: {error}; a job has text, numbers, true and false, None, lists and dicts") from error
    return document, SOURCE


def settings_of(changes: Mapping[str, Any] | None) -> list[str]:
    """Fields to set, as `--set` takes them; None removes a field.

    Raises:
        CommandError: a value that JSON does not have, or a path with an equals sign.
    """
    for path in changes or {}:
        if "=" in path:
            raise CommandError(f"set: {path!r} has a value in its name; write {{'spec.trainer.steps': 100}}")
    try:
        # Without escapes: YAML, which parses the value, would read an escaped emoji as two characters.
        return [
            f"{path}={json.dumps(value, allow_nan=False, ensure_ascii=False)}"
            for path, value in (changes or {}).items()
        ]
    except (TypeError, ValueError, RecursionError) as error:
        raise CommandError(
            f"set: {error}; a field holds text, numbers, true and false, None, lists or dicts"
        ) from error
