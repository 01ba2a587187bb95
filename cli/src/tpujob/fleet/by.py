"""What usage is added up by. It imports nothing, for every command reads the options of all."""

from __future__ import annotations

from enum import StrEnum


class By(StrEnum):
    """What usage is added up by."""

    NAMESPACE = "namespace"
    QUEUE = "queue"
    OWNER = "owner"
    JOB = "job"
