"""The output of a custom program, without routine lines of its launcher, and with a hint when it falls silent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tpujob.local.reports import LogFollower

SILENT_SECONDS = 120.0
"""Time without a line after which a notice is printed: a hang looks like this, and so does a long step."""

_WIRING = re.compile(
    r"\[Gloo\] Rank |tpujob launch: ((process|worker) \d+ of |no TPUJOB_ variables|the program |attempt )"
)
"""Lines of JAX's network library and of the launcher that are routine, or that are shown as notices."""


class ProgramOutput:
    """The new lines of a log. `now` is in seconds, of any monotonic clock."""

    def __init__(self, log: Path, *, verbose: bool, first_silent: Callable[[float], str] = lambda now: "") -> None:
        """Reads nothing yet.

        Args:
            log: Of process 0.
            verbose: Whether these routine lines are shown, too.
            first_silent: The process that has printed nothing for longest; empty if none stands out.
        """
        self._follower = LogFollower(log)
        self._verbose = verbose
        self._first_silent = first_silent
        self._heard_at: float | None = None
        self._is_silence_said = False

    def lines(self, now: float) -> Iterator[str]:
        """New lines, and one notice for each long silence."""
        lines = self._follower.lines()
        if lines or self._heard_at is None:
            self._heard_at, self._is_silence_said = now, False
        yield from self._shown(lines)
        if now - self._heard_at >= SILENT_SECONDS and not self._is_silence_said:
            self._is_silence_said = True
            first = self._first_silent(now)
            hint = f"{first}; its log may say more" if first else "the logs of the other processes may say more"
            yield (
                f"process 0 has printed nothing for {SILENT_SECONDS:.0f} s: it works, or it hangs; {hint}, and Ctrl-C "
                "ends all"
            )

    def rest(self) -> Iterator[str]:
        """The lines that are left when the program has ended."""
        return self._shown(self._follower.rest())

    def _shown(self, lines: Iterable[str]) -> Iterator[str]:
        return (line for line in lines if self._verbose or not _WIRING.match(line))
