"""Notices of the launchers of all processes about their running programs, from their logs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from tpujob.local.plan import LocalProcess
from tpujob.local.reports import LogFollower

_LAUNCHER = "tpujob launch: "
_NOTICE = f"{_LAUNCHER}the program "
_AGAIN = f"{_LAUNCHER}attempt "
"""All launchers write it at once; only that of the first process is shown."""
_ENOUGH_SECONDS = 1.0
"""By how much longer than all others a process must have been silent to be named."""


class LauncherNotices:
    """The logs of all processes: notices of their launchers, and for how long each has printed nothing."""

    def __init__(self, processes: Sequence[LocalProcess]) -> None:
        self._followers = [(process, LogFollower(process.log)) for process in processes]
        self._heard_at: dict[int, float] = {}

    def lines(self, now: float) -> Iterator[str]:
        """New notices, each with its process. `now` is in seconds, of any monotonic clock."""
        for process, follower in self._followers:
            lines = follower.lines()
            if lines or process.index not in self._heard_at:
                self._heard_at[process.index] = now
            yield from self._notices(process, lines)

    def rest(self) -> Iterator[str]:
        """The notices that are left when all programs have ended."""
        return itertools.chain.from_iterable(self._notices(each, follower.rest()) for each, follower in self._followers)

    def _notices(self, process: LocalProcess, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            if line.startswith(_NOTICE):
                yield f"process {process.index} ({process.name}): {line.removeprefix(_LAUNCHER)}"
            elif line.startswith(_AGAIN) and process is self._followers[0][0]:
                yield line.removeprefix(_LAUNCHER)

    def first_silent(self, now: float) -> str:
        """The process that has printed nothing for longest, in words; empty if none stands out."""
        if len(self._heard_at) < 2:
            return ""
        first, second = sorted(self._heard_at, key=lambda index: self._heard_at[index])[:2]
        if self._heard_at[second] - self._heard_at[first] < _ENOUGH_SECONDS:
            return ""
        name = self._followers[first][0].name
        return f"process {first} ({name}) has printed nothing for longest, {now - self._heard_at[first]:.0f} s"
