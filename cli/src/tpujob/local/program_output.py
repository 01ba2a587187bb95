"""The output of a custom program, with a hint when it falls silent, and notices of launchers and trainer from logs."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from tpujob.local.plan import LocalProcess
from tpujob.local.reports import LogFollower

_LAUNCHER = "tpujob launch: "
_NOTICE = f"{_LAUNCHER}the program "
_AGAIN = f"{_LAUNCHER}attempt "
"""All launchers write it at once; only that of the first process is shown."""
_WARNING = re.compile(r"[\d-]+ [\d:,]+ W tpujob_trainer\.(?!checkpoint\.)[\w.]+: (.+)")
"""What the trainer warns of is in no report, except for checkpoints: a run that saves often passes over many."""
_ENOUGH_SECONDS = 1.0
"""By how much longer than all others a process must have been silent to be named."""


class LauncherNotices:
    """The logs of all processes: notices of launchers, warnings of the first trainer, how long each printed nothing."""

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
            elif process is self._followers[0][0] and (warning := _WARNING.match(line)):
                yield f"warning: {warning[1]}"

    def first_silent(self, now: float) -> str:
        """The process that has printed nothing for longest, in words; empty if none stands out."""
        if len(self._heard_at) < 2:
            return ""
        first, second = sorted(self._heard_at, key=lambda index: self._heard_at[index])[:2]
        if self._heard_at[second] - self._heard_at[first] < _ENOUGH_SECONDS:
            return ""
        name = self._followers[first][0].name
        return f"process {first} ({name}) has printed nothing for longest, {now - self._heard_at[first]:.0f} s"


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
