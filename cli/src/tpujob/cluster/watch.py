"""Follows a job to its end, a line for each change."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tpujob.cluster.client import Cluster, Object, UnreachableError
from tpujob_resource.models.phases import TERMINAL, Phase

INTERVAL_SECONDS = 2.0
PROGRESS_SECONDS = 30.0
"""Steps are printed this often while nothing else changes."""
OUTAGE_SECONDS = 600.0
"""An upgrade of a control plane takes minutes, in which the job continues."""
SEEN_INTERVAL_SECONDS = 0.25


def follow(
    look: Callable[[], Object],
    *,
    until: Callable[[Mapping[str, Any]], bool],
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[str]:
    """Lines about a job, until its status meets a condition.

    Raises:
        CommandError: the job cannot be read, or the cluster has not answered for OUTAGE_SECONDS.
    """
    told, next_progress = "", 0.0
    silent_since: float | None = None
    while True:
        try:
            status = look().get("status") or {}
        except UnreachableError:
            if silent_since is None:
                yield "the cluster does not answer; the job goes on without it, and is asked about again"
                silent_since = clock()
            elif clock() - silent_since >= OUTAGE_SECONDS:
                raise
            wait(INTERVAL_SECONDS)
            continue
        silent_since = None
        line = headline(status)
        if line != told:
            yield line
            told = line
        elif status.get("phase") == Phase.RUNNING and clock() >= next_progress and (progress := _progress(status)):
            yield progress
            next_progress = clock() + PROGRESS_SECONDS
        if until(status):
            return
        wait(INTERVAL_SECONDS)


def follow_change(
    cluster: Cluster,
    job: Mapping[str, Any],
    *,
    say: Callable[[str], object],
    phases: Sequence[str] = (),
    limit_seconds: float = math.inf,
) -> Object:
    """Says a line for each change of a job, until it is in one of the phases, has ended, or time is up.

    A status from before the operator saw this generation of the job does not count: in it, a retried job is still
    Failed. Returns the job as it was read last.

    Raises:
        CommandError: as `follow`.
    """
    limit, seen = time.monotonic() + limit_seconds, list[Object]()

    def look() -> Object:
        seen[:] = [cluster.job(job["metadata"]["name"])]
        return seen[0]

    def is_over(status: Mapping[str, Any]) -> bool:
        return is_reached(job, status, phases) or time.monotonic() >= limit

    for line in follow(look, until=is_over):
        say(line)
    return seen[0]


def is_seen_within(
    look: Callable[[], Object],
    *,
    seconds: float,
    wait: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Whether the operator writes a status within this many seconds."""
    limit = clock() + seconds
    while not (look().get("status") or {}).get("phase"):
        if clock() >= limit:
            return False
        wait(SEEN_INTERVAL_SECONDS)
    return True


def has_ended(status: Mapping[str, Any]) -> bool:
    """Whether the job is over, or cannot start until it is edited."""
    return status.get("phase") in (*TERMINAL, Phase.INVALID)


def is_reached(job: Mapping[str, Any], status: Mapping[str, Any], phases: Sequence[str] = ()) -> bool:
    """Whether a status, written after the operator had seen this generation of the job, is in a phase or has ended."""
    is_seen = (status.get("observedGeneration") or 0) >= (job["metadata"].get("generation") or 0)
    return is_seen and (status.get("phase") in phases or has_ended(status))


def headline(status: Mapping[str, Any]) -> str:
    """Phase and message."""
    phase = status.get("phase") or "Submitted"
    # The message of a running job contains its step, which is progress and not a change.
    message = "" if phase == Phase.RUNNING else status.get("message") or ""
    return f"{phase}: {message}" if message else str(phase)


def _progress(status: Mapping[str, Any]) -> str:
    if status.get("step") is None:
        return ""
    parts = [f"step {status['step']}" + (f"/{status['steps']}" if status.get("steps") else "")]
    figures = status.get("progress") or {}
    if figures.get("loss") is not None:
        parts.append(f"loss {figures['loss']:.3f}")
    if figures.get("tokensPerSecond") is not None:
        parts.append(f"{figures['tokensPerSecond']:,.0f} tokens/s")
    if status.get("lastCheckpointStep") is not None:
        parts.append(f"checkpoint {status['lastCheckpointStep']}")
    return " · ".join(parts)
