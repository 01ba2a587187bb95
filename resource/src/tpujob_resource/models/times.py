"""Times as Kubernetes writes them: UTC, to the second."""

from datetime import UTC, datetime

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Times outside these limits are invalid, because arithmetic with them could overflow a `datetime`."""


def parse_time(text: str | None) -> datetime | None:
    """The time of a Kubernetes timestamp; None: there is none."""
    return datetime.fromisoformat(text) if text else None


def format_time(time: datetime) -> str:
    """A Kubernetes timestamp: UTC, whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
