"""The age of this process, including interpreter start and imports, and its memory. Linux only."""

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Of this container, which sees its own cgroup there (cgroups(7))."""


def process_age(stat: str | None = None, *, now: float | None = None) -> float:
    """Seconds since the process was started (proc(5), /proc/self/stat field 22)."""
    text = Path("/proc/self/stat").read_text() if stat is None else stat
    started = int(text.rpartition(")")[2].split()[19]) / _TICKS
    now = time.clock_gettime(time.CLOCK_BOOTTIME) if now is None else now
    return max(now - started, 0.0)


def resident_bytes() -> int:
    """Resident memory of this process (proc(5), /proc/self/statm field 2)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def host_memory_bytes() -> int:
    """The most memory that this process may use: that of the machine, or the limit of its container if that is less."""
    machine = _PAGE * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = CGROUP_LIMIT.read_text().strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdecimal() else machine
