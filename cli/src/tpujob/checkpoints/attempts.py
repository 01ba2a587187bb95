"""How the attempts of a job ended, from the files that its trainer leaves beside the checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tpujob import trainer_program
from tpujob.trainer_program import Program
from tpujob_contract.exit_codes import describe as describe_code
from tpujob_contract.reports.report import ATTEMPTS


def read_attempts(directory: str) -> dict[str, Any]:
    """The attempts of a checkpoint directory.

    Raises:
        CommandError: the directory does not exist, or cannot be read from here.
    """
    return trainer_program.ask(Program.CHECKPOINTS, directory, ATTEMPTS)


def sentences(found: Mapping[str, Any]) -> Iterator[str]:
    """Two or more lines for each attempt, the last one at the end."""
    if not found["attempts"]:
        yield f"{found['directory']}: no attempt has left a file"
    for each in found["attempts"]:
        # A file is named by the time of its attempt: attempts/20260101T120000Z-NONCE.json.
        started = each["file"].rpartition("/")[2].partition("-")[0]
        yield f"attempt {each.get('attempt') or 'unknown'}, started {started}: {_end(each)}{_progress(each)}"
        yield from (f"  {line}" for line in str(each.get("message") or "").splitlines())


def _end(attempt: Mapping[str, Any]) -> str:
    code = attempt.get("exit_code")
    return "runs, or was killed" if code is None else f"exit code {describe_code(code)}"


def _progress(attempt: Mapping[str, Any]) -> str:
    parts = []
    if attempt.get("step") is not None:
        steps = f" of {attempt['steps']}" if attempt.get("steps") else ""
        parts.append(f"step {attempt['step']}{steps}")
    if attempt.get("committed_step") is not None:
        parts.append(f"last checkpoint {attempt['committed_step']}")
    return "".join(f"; {part}" for part in parts)
