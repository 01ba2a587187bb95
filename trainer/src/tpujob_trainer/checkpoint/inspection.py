"""Describes a checkpoint directory for people: its steps, their sizes, metrics, configuration and versions.

    python -m tpujob_trainer.checkpoint.inspection DIRECTORY [STEP|newest|attempts]

Writes one JSON object to stdout; `tpujob checkpoint` runs it and formats that as text. Reads only small files.
"""

import logging
import sys
from typing import Any

from tpujob_contract.reports.report import ATTEMPTS, Report
from tpujob_contract.typed import object_in, typed
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.lock import OWNER, owner_in
from tpujob_trainer.storage import Bucket, open_bucket, reachability
from tpujob_trainer.storage import errors as storage_errors
from tpujob_trainer.storage.errors import unusable
from tpujob_trainer.storage.filesystems import located
from tpujob_trainer.values import programs
from tpujob_trainer.values.errors import NotFoundError
from tpujob_trainer.values.programs import answer, log_to_stderr

REACH_SECONDS = 5.0
"""How long to try a server that does not answer: a person waits at a terminal."""


def inspect(directory: str) -> dict[str, Any]:
    """The facts about a directory, as JSON values: its owner, checkpoints (newest first) and unfinished steps.

    Raises:
        TrainerError: it is not a checkpoint directory, or it cannot be read.
    """
    bucket = open_bucket(directory)
    try:
        reachability.wait_until_reachable(directory, notice=lambda message: None, limit_seconds=REACH_SECONDS)
        owner = bucket.look(OWNER)
        if owner is None:
            raise NotFoundError(
                f"DIRECTORY: {directory} is no checkpoint directory: it has no {OWNER}; give a job's "
                "spec.checkpointDir, or .tpujob/NAMESPACE/NAME/checkpoints for a run on this machine"
            )
        known = [(each.get("step"), each.get("loss")) for each in attempts(bucket)]
        losses = {step: loss for step, loss in known if step is not None and loss is not None}
        return {
            "directory": directory,
            "owner": owner_in(owner.data),
            "checkpoints": [describe(directory, step, losses=losses) for step in layout.committed(directory)],
            "unfinished": layout.leftovers(directory),
        }
    except OSError as error:
        raise unusable(directory, error) from error


def describe(directory: str, step: int, *, losses: dict[int, float]) -> dict[str, Any]:
    """One checkpoint: its time, size, metrics, data, versions and configuration, and why it cannot be used."""
    metadata, problem = _metadata(directory, step)
    run, data = _block(metadata, "configuration"), _block(metadata, "data")
    tokens = _number(run, "batchSize") * _number(run, "sequenceLength") * step
    return {
        "step": step,
        "problem": problem,
        "committed_time": layout.committed_at(directory, step),
        "bytes": _size(str(layout.folder(directory, step))),
        "loss": losses.get(step),
        "metrics": layout.metrics_of(directory, step),
        "data": {"batches": step, "tokens": tokens, "fingerprint": data.get("data")},
        "processes": metadata.get("processes"),
        "versions": _block(metadata, "versions"),
        "configuration": {**run, "model": _block(run, "model")},
    }


def _block(metadata: dict[str, Any], key: str) -> dict[str, Any]:
    """A block of a step's metadata; empty if it is damaged, which only this listing would notice."""
    found = metadata.get(key)
    return found if isinstance(found, dict) else {}


def _number(block: dict[str, Any], key: str) -> int:
    found = block.get(key)
    return found if type(found) is int else 0


def _metadata(directory: str, step: int) -> tuple[dict[str, Any], str | None]:
    """A step's metadata, and why the step cannot be used; None: it can be."""
    try:
        found = layout.metadata_of(directory, step)
        return found, layout.of_another_step(step, found.get(layout.STEP))
    except FileNotFoundError as error:
        return {}, storage_errors.brief(error)
    except (ValueError, TypeError) as error:
        return {}, str(error)


def select(found: dict[str, Any], step: int | None) -> dict[str, Any]:
    """One of the checkpoints of a directory; None selects the newest usable one, or else the newest.

    Raises:
        NotFoundError: there is no such checkpoint.
    """
    by_step = {each["step"]: each for each in found["checkpoints"]}
    if not by_step:
        raise NotFoundError(f"DIRECTORY: {found['directory']} has no committed checkpoint yet")
    usable = [each for each, about in by_step.items() if about["problem"] is None]
    wanted = max(usable or by_step) if step is None else step
    if wanted not in by_step:
        steps = ", ".join(map(str, sorted(by_step)))
        raise NotFoundError(f"--step: {wanted} is not a committed checkpoint; there are {steps}")
    chosen: dict[str, Any] = by_step[wanted]
    return {**chosen, "directory": found["directory"], "owner": found["owner"]}


def attempts(bucket: Bucket) -> list[dict[str, Any]]:
    """The file of each attempt, in order of time: its progress, and how it ended."""
    names = sorted(name for name in bucket.names(f"{ATTEMPTS}/") if name.endswith(".json"))
    return [{"file": name, **typed(object_in(bucket.read(name)), Report)} for name in names]


def _size(folder: str) -> int:
    files, path = located(folder)
    return int(files.du(path))


def main() -> int:
    """Inspects the directory, and the step or attempts, that the arguments name; returns the exit code."""
    log_to_stderr(logging.ERROR)
    directory, step = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    return answer(lambda: _inspected(directory, step))


def _inspected(directory: str, step: str | None) -> dict[str, Any]:
    found = inspect(directory)
    if step == ATTEMPTS:
        return {"directory": directory, "owner": found["owner"], "attempts": attempts(open_bucket(directory))}
    return found if step is None else select(found, None if step == "newest" else int(step))


if __name__ == "__main__":
    programs.end(main())
