"""The key by which usage is grouped. Imports little, because every command loads the options of all commands."""

from __future__ import annotations

from enum import StrEnum


class By(StrEnum):
    """The key by which usage is grouped."""

    NAMESPACE = "namespace"
    QUEUE = "queue"
    OWNER = "owner"
    JOB = "job"
