"""What a launcher knows of the round of its job, from the messages of launcher 0. Pure."""

from typing import Any, Mapping, Optional, Tuple

from tpujob_contract.exit_codes import ExitCode
from tpujob_contract.reports import in_place
from tpujob_contract.reports.report import split_final_report
from tpujob_contract.typed import object_in
from tpujob_launcher.peers.messages import FAILED, LINE_CHARACTERS, STALLED, End, attempt_in, end_in, printable
from tpujob_launcher.peers.verdict import after

WORDS_CHARACTERS = 400
"""Of the last lines of a program that failed, in the account of restarts."""


class State:
    """State of one launcher."""

    def __init__(self, process: int = 0, *, is_replacement: bool = False) -> None:
        """Starts in the first attempt; a replaced pod starts in none until launcher 0 names one."""
        self._process = process
        first = -1 if is_replacement else 0
        self.attempt = first
        """The attempt that this launcher's program is in; -1: none has started."""
        self.announced = first
        """The attempt that follows, or the running one."""
        self.allowed = first
        """The attempt that may start, or the running one."""
        self.account: in_place.Account = {}
        """Of restarts in place, from launcher 0."""
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
    def cause(self) -> str:
        """Why the last attempt ended."""
        end = end_in(self.account, "last")
        return printable(str(end), 2 * LINE_CHARACTERS) if end else ""

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

    def update(self, values: Mapping[str, Any]) -> None:
        """Takes over the state of the round; ignores what is invalid."""
        if "over" in values:
            self.over = printable(str(values["over"]))
        self.account = in_place.larger(self.account, in_place.checked(values.get("account")))
        attempt, is_running = attempt_in(values), values.get("running") is True
        if attempt is None:
            return
        if is_running:
            self._allow(attempt)
        self.announced = max(self.announced, attempt)
        if self.allowed != (attempt if is_running else attempt - 1):
            return
        first, met, refused = end_in(values, "first"), values.get("met"), values.get("refused")
        if first is not None:
            self.first, self.first_host = first, printable(str(values["first"].get("host", "")))
        self.asked = self.asked or printable(str(values.get("asked", "")))
        self.met = self.met or (met if isinstance(met, dict) else None)
        self.refused = self.refused or (refused if isinstance(refused, dict) else None)

    def add_details(self, message: str, output: str) -> None:
        """Adds to the last end what this launcher alone knows of it."""
        last = self.account.get("last")
        if last is None:
            return
        words, report = split_final_report(message)
        found = in_place.End(**last)
        if self._process == 0 and (step := _step(report)) is not None:
            found["step"] = step
        if last.get("process") == self._process and (left := (words or output).strip()):
            found["words"] = left[-WORDS_CHARACTERS:]
        self.account = {**self.account, "last": found}

    def begin(self, attempt: int) -> None:
        """Called before the program of an attempt starts."""
        self._allow(attempt)
        self.attempt = attempt

    def _allow(self, attempt: int) -> None:
        """Applies messages about that attempt from here on: it may end before the program here has started."""
        if attempt > self.allowed:
            self.allowed = attempt
            self._forget()
        self.announced = max(self.announced, attempt)


def _step(report: Optional[str]) -> Optional[int]:
    step = object_in(report or "").get("step")
    return step if type(step) is int else None
