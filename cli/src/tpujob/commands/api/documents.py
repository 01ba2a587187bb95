"""Jobs as Python programs pass them: a file, or the resource as a dict."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpujob.job.job_file import read_document
from tpujob.output.errors import CommandError

SOURCE = Path("job")
"""The file name in messages about a dict."""


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
