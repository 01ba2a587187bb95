"""Whether the kernel has killed a process of this container because its memory limit was reached."""

import re
from pathlib import Path
from typing import List, Optional

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
VERSIONS = (
    ("", r"^0::/(.*)$", "memory.events", "memory.max"),
    ("memory", r"^\d+:(?:.*,)?memory(?:,.*)?:/(.*)$", "memory.oom_control", "memory.limit_in_bytes"),
)
"""Of version 2 and 1: the folder of all cgroups, the own one's name in `OWN`, the files with kills and limit."""
UNLIMITED = 1 << 60
"""A limit of version 1 from which on there is none."""


class Memory:
    """The kills so far in the cgroup of this process, in which its program runs, too."""

    def __init__(self, root: Path = ROOT, own: Path = OWN) -> None:
        try:
            names = own.read_text()
        except OSError:
            names = ""
        self._folder = root
        for part, name, self._events, self._limit in VERSIONS:
            found = re.search(name, names, re.MULTILINE)
            # A container sees its own cgroup as the root.
            folders = [root / part / (found[1] if found else ""), root / part]
            there = [folder for folder in folders if (folder / self._events).exists()]
            if there:
                self._folder = there[0]
                break
        self._before = self._kills()

    def diagnostics(self) -> List[str]:
        """A line about the limit if it has ended a process since this was made."""
        if self._kills() <= self._before:
            return []
        limit = (self._read(self._limit) or "").strip()
        size = f" of {int(limit) >> 20:,} MiB" if limit.isdecimal() and int(limit) < UNLIMITED else ""
        return [f"the kernel killed it because the memory limit{size} was reached ({self._limit} of its cgroup)"]

    def _kills(self) -> int:
        found = re.search(r"^oom_kill (\d+)$", self._read(self._events) or "", re.MULTILINE)
        return int(found[1]) if found else 0

    def _read(self, name: str) -> Optional[str]:
        try:
            return (self._folder / name).read_text()
        except OSError:
            return None
