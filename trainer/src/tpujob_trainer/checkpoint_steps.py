"""The committed steps of a checkpoint directory, as the file system shows them: no JAX, no other process."""

from __future__ import annotations

import dataclasses
import json
import logging
import secrets
import time

from etils import epath

from tpujob_trainer import atomic_files

logger = logging.getLogger(__name__)

STEPS = "steps"
"""Root of Orbax's step folders."""
STATE = "state"
"""The one item of a step."""
COMMITTED = "commit_success.txt"
"""Orbax's marker, written last by process 0 (google/orbax:checkpoint/CHANGELOG.md, 0.12.3)"""
LATEST = "latest.json"
"""Hint for people and programs: step and time of the newest commit, written after it was seen."""
UNUSABLE = "unusable"


@dataclasses.dataclass(frozen=True)
class Commit:
    """A committed step and when it was committed, in Unix seconds."""

    step: int
    time: float


def folder(directory: epath.PathLike, step: int) -> epath.Path:
    """Where a step lies."""
    return epath.Path(directory) / STEPS / str(step)


def is_committed(directory: epath.PathLike, step: int) -> bool:
    """Whether the step is a checkpoint."""
    return (folder(directory, step) / COMMITTED).exists()


def committed(directory: epath.PathLike) -> list[int]:
    """All committed steps, newest first."""
    root = epath.Path(directory) / STEPS
    if not root.exists():
        return []
    steps = [int(p.name) for p in root.iterdir() if p.name.isdigit()]
    return sorted((s for s in steps if is_committed(directory, s)), reverse=True)


def set_aside(directory: epath.PathLike, step: int, reason: str) -> str:
    """Makes a step no checkpoint any more without losing its data; returns where it is now.

    A folder is moved to `unusable/`. A bucket has no moving: there the commit marker becomes `unusable.json`, and the
    data goes when the same step is saved again.
    """
    bad = folder(directory, step)
    note = json.dumps({"step": step, "reason": reason, "time": time.time()}) + "\n"
    if atomic_files.is_local(directory):
        target = epath.Path(directory) / UNUSABLE / f"{step}-{secrets.token_hex(4)}"
        target.parent.mkdir(parents=True, exist_ok=True)
        bad.rename(target)
        atomic_files.replace_text(target / "unusable.json", note)
        return str(target)
    atomic_files.replace_text(bad / "unusable.json", note)
    (bad / COMMITTED).unlink(missing_ok=True)
    return str(bad)


def write_latest(directory: epath.PathLike, commit: Commit) -> None:
    """Leaves the hint."""
    text = json.dumps({"step": commit.step, "time": commit.time, "path": str(folder(directory, commit.step))}) + "\n"
    atomic_files.replace_text(epath.Path(directory) / LATEST, text)


def committed_at(directory: epath.PathLike, step: int) -> float:
    """When a committed step was committed: the time of its marker, in Unix seconds."""
    return float((folder(directory, step) / COMMITTED).stat().mtime)
