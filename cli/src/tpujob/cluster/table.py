"""Jobs as a table for people. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tpujob_resource.models.job import other_manager

COLUMNS = ("NAME", "ACCELERATOR", "PHASE", "HOSTS", "STEP", "TOKENS/S", "LOSS", "CHECKPOINT", "RESTARTS", "AGE")


def rows(jobs: Sequence[Mapping[str, Any]], now: datetime) -> list[tuple[str, ...]]:
    """One row of text for each job, in the order of COLUMNS; unknown values are empty."""
    return [_row(job, now) for job in jobs]


def render(table: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns, as kubectl writes them."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))] if table else []
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def age(since: str | None, now: datetime) -> str:
    """The time since an RFC 3339 time, as 45s, 12m, 3h10m or 2d4h; empty for None."""
    if not since:
        return ""
    seconds = max(0, int((now - parse_time(since)).total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 120:
        return f"{minutes}m"
    return f"{hours}h{minutes % 60}m" if hours < 48 else f"{days}d{hours % 24}h"


def parse_time(text: str) -> datetime:
    """A time as Kubernetes writes it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _row(job: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    spec, status = job["spec"], job.get("status") or {}
    slices = spec.get("slices")
    step, steps = status.get("step"), status.get("steps")
    figures, restarts = status.get("progress") or {}, status.get("restarts") or {}
    rate, loss = figures.get("tokensPerSecond"), figures.get("loss")
    committed = status.get("lastCheckpointStep")
    hosts = status.get("hosts")
    return (
        job["metadata"]["name"],
        f"{slices}x{spec['accelerator']}" if slices and slices > 1 else spec["accelerator"],
        _phase(spec, status),
        "" if hosts is None else f"{status.get('hostsReady') or 0}/{hosts}",
        "" if step is None else f"{step}/{steps}" if steps else str(step),
        "" if rate is None else f"{rate:,.0f}",
        "" if loss is None else f"{loss:.3f}",
        "" if committed is None else f"{committed} ({age(status.get('lastCheckpointTime'), now)})",
        str(restarts.get("total") or 0),
        age(job["metadata"].get("creationTimestamp"), now),
    )


def _phase(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """The phase, with the manager that wrote it if that is not this cluster's operator."""
    manager, phase = other_manager(spec.get("managedBy")), status.get("phase") or ""
    return phase if manager is None else f"{phase} (by {manager})".strip()
