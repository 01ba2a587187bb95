"""Times as Kubernetes writes them: UTC, to the second."""

from __future__ import annotations

from datetime import UTC, datetime

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Times outside these limits are invalid: sums with them could leave what a `datetime` can hold."""


def parse_time(text: str | None) -> datetime | None:
    """A Kubernetes time stamp."""
    return datetime.fromisoformat(text) if text else None


def format_time(time: datetime) -> str:
    """The way Kubernetes writes times: UTC, whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
