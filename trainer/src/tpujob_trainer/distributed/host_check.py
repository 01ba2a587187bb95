"""Finds slow or faulty hosts from what the hosts of a run measured before the first step. Pure."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

GIB = 1 << 30
LEAST_MEMORY_BYTES = GIB
LEAST_DISK_BYTES = GIB
MOST_SKEW_SECONDS = 5.0
"""Clocks of hosts may differ by this; beyond it, timestamps of logs and leases mislead."""
SLOW_SECONDS, SLOW_RATIO = 1.0, 4.0
"""A host is slow if it takes this much longer than the median host, and this many times as long."""
MOST_NAMED = 8
MOST_WARNINGS = 20

Name = Callable[[int], str]
"""Returns the name of a process for messages."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HostFacts:
    """The facts of one process; JSON values."""

    ready_seconds: float
    """From the barrier that all processes left together until its devices had their numbers."""
    clock: float
    """Its wall clock at that barrier, in Unix seconds."""
    memory_bytes: int
    """Free memory of the host."""
    disk_bytes: int
    """Free bytes where temporary files go."""


def warnings(facts: Sequence[Mapping[str, Any]], name: Name) -> list[str]:
    """One line for each anomaly of a host, with its name; at most twenty, and a line with the number of the others."""
    hosts = [HostFacts(**each) for each in facts]
    found = [*_slow(hosts, name), *_skewed(hosts, name), *_short(hosts, name)]
    more = len(found) - MOST_WARNINGS
    return found[:MOST_WARNINGS] + ([f"and {more} more warnings about hosts"] if more > 0 else [])


def _slow(hosts: Sequence[HostFacts], name: Name) -> Iterator[str]:
    median = statistics.median(host.ready_seconds for host in hosts)
    for i, host in enumerate(hosts):
        if host.ready_seconds - median > SLOW_SECONDS and host.ready_seconds > SLOW_RATIO * median:
            yield (
                f"{name(i)} is slow: its devices were ready after {host.ready_seconds:.1f} s, the median host's after "
                f"{median:.1f} s; all others wait for it at every step"
            )


def _skewed(hosts: Sequence[HostFacts], name: Name) -> Iterator[str]:
    median = statistics.median(host.clock for host in hosts)
    for i, host in enumerate(hosts):
        if abs(host.clock - median) > MOST_SKEW_SECONDS:
            direction = "ahead of" if host.clock > median else "behind"
            yield f"{name(i)} has a clock {abs(host.clock - median):.0f} s {direction} the median host's; set it right"


def _short(hosts: Sequence[HostFacts], name: Name) -> Iterator[str]:
    for i, host in enumerate(hosts):
        if host.memory_bytes < LEAST_MEMORY_BYTES:
            yield f"{name(i)} has {host.memory_bytes / GIB:.1f} GiB of free memory; saves and data need some"
        if host.disk_bytes < LEAST_DISK_BYTES:
            yield f"{name(i)} has {host.disk_bytes / GIB:.1f} GiB of free disk for temporary files"


def wrong_hosts(results: Sequence[Sequence[int]], owners: Sequence[int], name: Name) -> str | None:
    """Which hosts made an all-reduce wrong, as text; None: every process has the right result.

    Args:
        results: For each process, the numbers of the devices whose contribution it found wrong in its own result.
        owners: For each device, the process that it belongs to.
        name: Returns the name of a process for messages.
    """
    found = [frozenset(result) for result in results]
    everywhere = frozenset.intersection(*found)
    senders = sorted({owners[device] for device in everywhere})
    receivers = [i for i, wrong in enumerate(found) if wrong - everywhere]
    parts = []
    if senders:
        parts.append(f"{_named(senders, name)} contributed wrong numbers")
    if receivers:
        parts.append(f"{_named(receivers, name)} received wrong numbers")
    return "; ".join(parts) or None


def _named(processes: Sequence[int], name: Name) -> str:
    more = f" and {len(processes) - MOST_NAMED} more" if len(processes) > MOST_NAMED else ""
    return ", ".join(map(name, processes[:MOST_NAMED])) + more
