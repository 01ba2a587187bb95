"""The steps of a checkpoint directory, as the file system shows them: no JAX, no other process.

A step is a checkpoint when its marker exists. The marker is written last and deleted first. Orbax's CheckpointManager
(0.12.8) lists a folder of a file system without its marker, such as half a copy, as a checkpoint.
"""

import dataclasses
import glob
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

import fsspec
from etils import epath

from tpujob_trainer.storage import is_local, open_bucket
from tpujob_trainer.values.json_object import json_object

logger = logging.getLogger(__name__)

STEPS = "steps"
"""Root of Orbax's step folders."""
STATE = "state"
"""Orbax's item with all arrays."""
FINGERPRINTS = "fingerprints"
"""Orbax's item with the fingerprints of all arrays, as JSON."""
METADATA = "_CHECKPOINT_METADATA"
"""Orbax's file with what was given as `custom_metadata`."""
COMMITTED = "commit_success.txt"
"""Orbax's marker, written last by process 0 (google/orbax:checkpoint/CHANGELOG.md, 0.12.3)"""
LATEST = "latest.json"
"""Hint for people and programs: step and time of the newest commit, written after it was seen."""
METRICS = "metrics"
"""Folder with the metrics of each step."""
UNUSABLE = "unusable"
"""Folder of the steps that were set aside, on file systems; on buckets the note in the step."""
TRASH = "trash"
"""Folder of the steps that are being deleted, on file systems."""
STEP = "step"
"""Metadata key of the step that was saved, by which a copied or renamed folder is recognized."""
UNFINISHED = ".orbax-checkpoint-tmp"
"""Follows the step in the name of its folder until its commit, on file systems."""


_Path = type(epath.Path("/"))
_glob = _Path.glob


def _glob_below(self: epath.Path, pattern: str) -> Iterator[epath.Path]:
    """Etils (1.15) takes the folder for a part of the pattern.

    In a folder whose name has brackets Orbax would find no parts of a checkpoint, merge none, and commit it.
    """
    return _glob(_Path(glob.escape(os.fspath(self))), pattern)


_Path.glob = _glob_below


@dataclasses.dataclass(frozen=True)
class Commit:
    """A committed step and when it was committed, in Unix seconds."""

    step: int
    time: float


def folder(directory: epath.PathLike, step: int) -> epath.Path:
    """The folder of a step."""
    return epath.Path(directory) / STEPS / str(step)


def is_committed(directory: epath.PathLike, step: int) -> bool:
    """Whether the step is a checkpoint."""
    return (folder(directory, step) / COMMITTED).exists()


def committed(directory: epath.PathLike) -> list[int]:
    """All committed steps, newest first."""
    root = epath.Path(directory) / STEPS
    _forget_listings(directory)
    if not root.exists():
        return []
    steps = (step_of(p.name) for p in root.iterdir())
    return sorted((s for s in steps if s is not None and is_committed(directory, s)), reverse=True)


def leftovers(directory: epath.PathLike) -> list[int]:
    """Steps with files that are no checkpoint: from an interrupted save, or set aside; ascending."""
    root = epath.Path(directory) / STEPS
    _forget_listings(directory)
    if not root.exists():
        return []
    steps = {step_of(p.name.split(UNFINISHED)[0]) for p in root.iterdir()} - {None}
    return sorted(s for s in steps if s is not None and not is_committed(directory, s))


def step_of(name: str) -> int | None:
    """The step whose folder or file has this name; None: it is of another program, or a copy, such as 007 for 7."""
    return int(name) if re.fullmatch(r"0|[1-9][0-9]{0,17}", name) else None


def is_set_aside(directory: epath.PathLike, step: int) -> bool:
    """Whether the files of a step were found unusable, and are kept for inspection."""
    return open_bucket(directory).look(_note(step)) is not None


def delete(directory: epath.PathLike, step: int) -> None:
    """Deletes a step, which stops being a checkpoint first, wherever this is interrupted."""
    found = folder(directory, step)
    if is_local(directory):
        trash = epath.Path(directory) / TRASH
        trash.mkdir(exist_ok=True)
        unfinished = [path for path in found.parent.iterdir() if path.name.startswith(f"{step}{UNFINISHED}")]
        for path in [found, *unfinished]:
            if path.exists():
                path.rename(trash / f"{path.name}-{secrets.token_hex(4)}")
        for path in trash.iterdir():
            path.rmtree()
    else:
        (found / COMMITTED).unlink(missing_ok=True)
        _forget_listings(directory)
        if found.exists():
            found.rmtree()
    # Last: TensorStore writes a lock beside a file that it deletes; a full disk has room for it only now.
    open_bucket(directory).delete(_metrics(step))


def fingerprints_of(directory: epath.PathLike, step: int) -> tuple[str, dict[str, str]]:
    """The name of the algorithm, and the fingerprints that were saved with a step.

    Raises:
        ValueError: the file holds something else.
    """
    values = json_object(open_bucket(directory).read(f"{STEPS}/{step}/{FINGERPRINTS}/metadata"))
    try:
        algorithm, by_array = values["algorithm"], values["arrays"]
        found = {str(name): str(value) for name, value in by_array.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the file of fingerprints is not as it was written ({error!r})") from error
    if not re.fullmatch(r"tpujob/[0-9]+", algorithm):
        raise ValueError(f"the file of fingerprints names the algorithm {algorithm!r}")
    return algorithm, found


def metadata_of_newest(directory: epath.PathLike) -> dict[str, Any] | None:
    """The metadata of the newest checkpoint with readable metadata; None: there is none."""
    for step in committed(directory):
        try:
            return metadata_of(directory, step)
        except (OSError, ValueError) as error:
            logger.warning("The metadata of step %d cannot be read: %r", step, error)
    return None


def metadata_of(directory: epath.PathLike, step: int) -> dict[str, Any]:
    """The metadata of a step.

    Raises:
        ValueError: the file holds something else.
    """
    try:
        found = json_object(open_bucket(directory).read(f"{STEPS}/{step}/{METADATA}"))["custom_metadata"]
    except (ValueError, KeyError) as error:
        raise ValueError(f"the file {METADATA} is not as it was written ({error!r})") from error
    if not isinstance(found, dict):
        raise ValueError(f"the file {METADATA} is not as it was written (a {type(found).__name__} for an object)")  # noqa: TRY004
    return found


def of_another_step(step: int, stored: Any) -> str | None:
    """Why the files of a step are not of that step; None: they are, or they name no step.

    Args:
        step: From the name of the folder.
        stored: From the metadata or the arrays; None: they name no step.
    """
    try:
        found = None if stored is None else int(stored)
    except (TypeError, ValueError, OverflowError):
        return f"it does not say its step, but {str(stored)[:40]!r}: its metadata was changed"
    return None if found is None or found == step else f"it holds step {found}: the folder was renamed"


def write_metrics(directory: epath.PathLike, step: int, metrics: Mapping[str, float]) -> None:
    """Stores the metrics of a step; outside its folder, because they are known after the step was saved."""
    open_bucket(directory).write(_metrics(step), json.dumps(dict(metrics)) + "\n")


def metrics_of(directory: epath.PathLike, step: int) -> dict[str, float]:
    """The metrics of a step; empty if they cannot be read."""
    try:
        values = json_object(open_bucket(directory).read(_metrics(step)))
        return {str(name): float(value) for name, value in values.items()}
    except (OSError, ValueError, TypeError, OverflowError):
        return {}


def set_aside(directory: epath.PathLike, step: int, reason: str) -> str:
    """Makes a step no longer a checkpoint, but keeps its data; returns where the data is now.

    A folder is moved to `unusable/`. A bucket cannot move folders: there, `unusable.json` replaces the commit marker,
    and the data is deleted when the same step is saved again.
    """
    bad = folder(directory, step)
    note = json.dumps({"step": step, "reason": reason, "time": time.time()}) + "\n"
    if is_local(directory):
        target = epath.Path(directory) / UNUSABLE / f"{step}-{secrets.token_hex(4)}"
        target.parent.mkdir(exist_ok=True)
        bad.rename(target)
        open_bucket(target).write(f"{UNUSABLE}.json", note)
        return str(target)
    open_bucket(directory).write(_note(step), note)
    (bad / COMMITTED).unlink(missing_ok=True)
    return str(bad)


def write_latest(directory: epath.PathLike, commit: Commit) -> None:
    """Writes `latest.json`."""
    text = json.dumps({"step": commit.step, "time": commit.time, "path": str(folder(directory, commit.step))}) + "\n"
    open_bucket(directory).write(LATEST, text)


def committed_at(directory: epath.PathLike, step: int) -> float:
    """When a committed step was committed: the time of its marker, in Unix seconds."""
    return float((folder(directory, step) / COMMITTED).stat().mtime)


def _metrics(step: int) -> str:
    return f"{METRICS}/{step}.json"


def _note(step: int) -> str:
    return f"{STEPS}/{step}/{UNUSABLE}.json"


def _forget_listings(directory: epath.PathLike) -> None:
    """Clears epath's cache of a bucket's listings: others write there as well."""
    if not is_local(directory):
        # The instance that epath uses.
        fsspec.filesystem("gcs", finalize_on_close=True).invalidate_cache()
