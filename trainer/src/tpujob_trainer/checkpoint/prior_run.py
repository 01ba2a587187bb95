"""Compares what an earlier run left in a checkpoint directory with the job that wants to continue there. Pure.

The messages are about `spec.checkpointDir`; the modules that read the directory supply the facts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tpujob_trainer.parsing.json_object import json_object

OWNER = "owner.json"
"""The file that names the directory's owner, as `{"owner": "namespace/name"}`."""
LOCK = ".lock"
"""The lock file on local paths: held by process 0 while it lives, with a line that names it."""


def owner_in(text: bytes | str) -> str | None:
    """The owner that `owner.json` names; None: it names none."""
    try:
        found = json_object(text).get("owner")
    except ValueError:
        return None
    return found if isinstance(found, str) else None


def owner_problem(directory: str, present: str | None, owner: str, adopt: str | None) -> str | None:
    """Why this job may not write to a directory that belongs to `present`; None: it may."""
    if present == owner or (present is not None and present == adopt):
        return None
    if present is None:
        return (
            f"spec.checkpointDir: {directory}/{OWNER} does not say whose directory it is; "
            f'use another directory, or put {{"owner": "{owner}"}} there'
        )
    return (
        f"spec.checkpointDir: {directory} belongs to {present}, and this job is {owner}; use another directory, "
        f"or set spec.trainer.checkpoint.adopt: {present} to take it over"
    )


def model_differences(then: Mapping[str, Any], now: Mapping[str, Any], ignored: frozenset[str]) -> list[str]:
    """The keys whose values differ between a stored configuration and this one, as in "layers: 4 then, 3 now"."""
    return [
        f"{key}: {_text(then[key])} then, {_text(value)} now"
        for key, value in sorted(now.items())
        if key in then and key not in ignored and then[key] != value
    ]


def _text(value: Any) -> str:
    return "unset" if value is None else json.dumps(value).strip('"')
