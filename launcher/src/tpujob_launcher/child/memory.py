"""Whether the kernel has killed a process of this container because its memory limit was reached (cgroup v2)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Optional

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


class Memory:
    """The kills so far in the cgroup of this process, in which its program runs, too."""

    def __init__(self, root: Path = ROOT, own: Path = OWN) -> None:
        self._folder = root
        try:
            found = re.search(r"^0::/(.*)$", own.read_text(), re.MULTILINE)
        except OSError:
            found = None
        # A container sees its own cgroup as the root.
        if found is not None and (root / found[1] / "memory.events").exists():
            self._folder = root / found[1]
        self._before = self._kills()

    def diagnostics(self) -> List[str]:
        """A line about the limit if it has ended a process since this was made."""
        if self._kills() <= self._before:
            return []
        limit = self._read("memory.max") or ""
        size = f" of {int(limit) >> 20:,} MiB" if limit.strip().isdecimal() else ""
        return [f"the kernel killed it because the memory limit{size} was reached (memory.max of its cgroup)"]

    def _kills(self) -> int:
        found = re.search(r"^oom_kill (\d+)$", self._read("memory.events") or "", re.MULTILINE)
        return int(found[1]) if found else 0

    def _read(self, name: str) -> Optional[str]:
        try:
            return (self._folder / name).read_text()
        except OSError:
            return None
