"""Metadata on the fields of a job's spec that says when each may change.

The API server's rules, the hash of a JobSet's inputs, and the reference derive from it.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache

from pydantic import BaseModel


class Change(StrEnum):
    """When a field may change."""

    NEVER = "never"
    """Not after the job is created."""
    STOPPED = "stopped"
    """While no JobSet of the job runs; a change creates a new one. This is the default."""
    RUNNING = "running"
    """At any time, without a new JobSet."""
    RAISED = "raised"
    """At any time, but only to a larger number."""
    ELASTIC = "elastic"
    """At any time for independent workers that share units and have no queue; otherwise as `STOPPED`."""


@cache
def changes(model: type[BaseModel]) -> dict[str, Change]:
    """When each field of a spec may change, by its name in manifests."""
    return {
        field.alias or name: next((note for note in field.metadata if isinstance(note, Change)), Change.STOPPED)
        for name, field in model.model_fields.items()
    }


def changing_in_place(model: type[BaseModel], *, is_elastic: bool) -> frozenset[str]:
    """The fields whose change does not create a new JobSet."""
    kinds = {Change.RUNNING, Change.RAISED, *([Change.ELASTIC] if is_elastic else [])}
    return frozenset(name for name, change in changes(model).items() if change in kinds)
