"""When each field of a job's spec may change: metadata on the fields, and what is read of it.

The API server's rules, the hash of what a JobSet is made from, and the reference come from here.
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
    """While no JobSet of the job runs; a change makes a new one. Of every field that says nothing else."""
    RUNNING = "running"
    """At any time, and no new JobSet is made."""
    RAISED = "raised"
    """At any time, and only to a larger number."""
    ELASTIC = "elastic"
    """At any time, for independent workers that share units and are in no queue; else as `STOPPED`."""


@cache
def changes(model: type[BaseModel]) -> dict[str, Change]:
    """When each field of a spec may change, by the name that people write."""
    return {
        field.alias or name: next((note for note in field.metadata if isinstance(note, Change)), Change.STOPPED)
        for name, field in model.model_fields.items()
    }


def changing_in_place(model: type[BaseModel], *, is_elastic: bool) -> frozenset[str]:
    """Fields whose change makes no new JobSet."""
    kinds = {Change.RUNNING, Change.RAISED, *([Change.ELASTIC] if is_elastic else [])}
    return frozenset(name for name, change in changes(model).items() if change in kinds)
