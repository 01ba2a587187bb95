"""Finds slow or faulty hosts, and other versions, by what the hosts of a run report before the first step.

All hosts get the same image by name. If its tag is pushed again, the next host that pulls it gets another image, and
processes whose code differs in one place hang, or worse.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tpujob_contract import environment

PACKAGES = ("tpujob-trainer", "jax", "jaxlib", "libtpu", "flax", "optax", "orbax-checkpoint")
"""Packages that are listed by name; a hash covers all installed ones."""
INSTALLED = "all installed packages"
CODE = "the trainer's own code"
JOB_CODE = "the job's code (spec.code)"


def versions(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The versions of Python and of `PACKAGES`, and hashes of all packages, the trainer's code and the job's code."""
    named = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            named[name] = importlib.metadata.version(name)
    return {
        "python": platform.python_version(),
        **named,
        INSTALLED: _hash(*_installed()),
        CODE: _code(Path(__file__).parents[1]),
        **({JOB_CODE: environ[environment.CODE_SHA256]} if environ.get(environment.CODE_SHA256) else {}),
    }


def _installed() -> list[str]:
    """Names with versions, from the names of the dist-info folders: reading their metadata takes a second."""
    return sorted({path.stem for entry in sys.path for path in Path(entry or ".").glob("*.dist-info")})


def _code(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*.py"))
    return _hash(*(f"{path.relative_to(folder)}{os.linesep}{path.read_text()}" for path in files))


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


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
