"""The messages of launcher 0 as state, kept by each launcher. Pure."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Tuple

from tpujob_contract.exit_codes import ExitCode
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.messages import FAILED, LINE_CHARACTERS, STALLED, End, Message, attempt_in, end_in, printable
from tpujob_launcher.peers.verdict import after


class Standing:
    """State of one launcher; only messages of launcher 0 change it."""

    def __init__(self, process: int = 0, *, is_newcomer: bool = False) -> None:
        """Starts in the first attempt; a newcomer, in a replaced pod, in none until launcher 0 names one."""
        self._process = process
        first = -1 if is_newcomer else 0
        self.attempt = first
        """The attempt that this launcher's program is in; -1: none has started."""
        self.announced = first
        """The attempt that follows, or the running one."""
        self.allowed = first
        """The attempt that may start, or the running one."""
        self.cause = ""
        """Why the last attempt ended."""
        self.end: Optional[End] = None
        """The end of the last attempt; None: launcher 0 did not name it."""
        self.over: Optional[str] = None
        """Why no further attempt starts in this container."""

        self._forget()

    def _forget(self) -> None:
        self.first: Optional[End] = None
        """The first end of the attempt, which ended it, as far as launcher 0 knows."""
        self.first_host = ""
        """The host of that process; empty where it is not known."""
        self.asked = ""
        """Which process was asked to stop first; empty: none is known."""
        self.met: Optional[Mapping[str, Any]] = None
        """What launcher 0 sent once all programs had joined."""
        self.refused: Optional[Mapping[str, Any]] = None
        """Why they cannot join."""

    @property
    def has_to_end(self) -> bool:
        """Whether the running program has to end because another process failed."""
        first = self.first
        # A failure of its own program, which this launcher reported.
        is_own = first is not None and first.process == self._process and first.kind == FAILED
        return self.announced > self.attempt or (first is not None and not is_own)

    @property
    def following(self) -> Optional[Tuple[int, str]]:
        """Exit code and message of this launcher's program if it ends because of another one."""
        if self.first is None and self.asked and self.announced > self.attempt:
            return ExitCode.STOPPED, f"asked to stop ({self.asked})"
        if self.first is None or (self.first.process == self._process and self.first.kind != STALLED):
            return None
        return after(self.first, self.first_host, self.asked)

    def take(self, message: Message) -> None:
        """Applies a message of launcher 0; drops anything else."""
        kind, values = message
        attempt = attempt_in(values)
        if kind == messages.OVER:
            self.over = printable(str(values.get("reason", "")))
        elif kind == messages.WELCOME and attempt is not None and values.get("running") is True:
            if attempt > self.allowed:
                self.end = None  # of an attempt that ended without this launcher
            self._allow(attempt)
        elif kind in (messages.WELCOME, messages.RESTART) and attempt is not None:
            self.announced = max(self.announced, attempt)
        elif kind == messages.GO and attempt is not None:
            self._allow(attempt)
            self.cause = printable(str(values.get("cause", "")), 2 * LINE_CHARACTERS)
            self.end = end_in(values)
        elif attempt == self.allowed:
            self._take_of_attempt(kind, values)

    def _allow(self, attempt: int) -> None:
        """Applies messages about that attempt from here on: it may end before the program here has started."""
        if attempt > self.allowed:
            self.allowed = attempt
            self._forget()
        self.announced = max(self.announced, attempt)

    def _take_of_attempt(self, kind: str, values: Mapping[str, Any]) -> None:
        end = end_in(values) if kind == messages.END else None
        if end is not None:
            self.first, self.first_host = end, printable(str(values.get("host", "")))
        elif kind == messages.ASKED:
            self.asked = self.asked or printable(str(values.get("who", "")))
        elif kind == messages.MET:
            self.met = self.met or values
        elif kind == messages.REFUSED:
            self.refused = self.refused or values

    def begin(self, attempt: int) -> None:
        """Called before the program of an attempt starts."""
        self._allow(attempt)
        self.attempt = attempt
