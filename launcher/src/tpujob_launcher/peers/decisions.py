"""Whether all start again, and when. Pure: launcher 0 tells what it hears, and says what it is told.

All programs of a job start together or not at all. The first failure of an attempt ends it everywhere; the next one
begins when nothing of the last is left anywhere. What cannot be tried again here ends the containers, one by one as
their programs end, and is the operator's decision.
"""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Sequence, Set, Tuple

from tpujob_contract.exit_codes import FATAL, KILLED_FIRST_SECONDS, KILLED_FROM_OUTSIDE, ExitCode
from tpujob_launcher.child.supervisor import FINISHED_SECONDS
from tpujob_launcher.peers.messages import GO, OVER, RESTART, End, Message

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 600.0
"""An attempt that lasted so long was no part of a crash loop: the next one follows without a pause."""
READY_SECONDS = 60.0
"""For what is left of an attempt to be gone everywhere: killed processes, and a TPU driver that lets go."""

_CONSEQUENCE = re.compile(r"(\S+: process \d+ of \d+: )?(lost|ended with) process ")
"""How the trainer begins the message of a process that ends since another did, in its log or as its last word."""


class Decisions:
    """Of launcher 0, for as long as its container lives."""

    def __init__(self, processes: int, limit: int) -> None:
        """Waits for everybody.

        Args:
            processes: Of the job.
            limit: How often all may start again in these containers.
        """
        self.attempt = 0
        """Which attempt in these containers runs, or is about to."""
        self.over: Optional[str] = None
        """Why there is no further attempt here; None: there may be one."""
        self.causes: List[End] = []
        """What ended each attempt but the last."""
        self._processes = processes
        self._limit = limit
        self._here: Set[int] = {0}
        self._ends: Dict[int, End] = {}
        self._ready: Set[int] = set()
        self._is_ending = False
        self._began: Optional[float] = None
        """When the running attempt was started in place; None: it came with the containers."""
        self._quick = 0
        """How many attempts in a row ended soon after they were started in place."""
        self._deadline = 0.0
        self._go_at: Optional[float] = None
        self._finished: Optional[Tuple[int, float]] = None
        """The process that finished first, and until when the others may go on before it is named."""

    def arrived(self, process: int) -> None:
        """A launcher has connected."""
        self._here.add(process)

    def gone(self, process: int) -> List[Message]:
        """The connection of a launcher is lost: its pod is gone, or its container has ended."""
        self._here.discard(process)
        return self._close(f"the launcher of process {process} is gone") if self._is_ending else []

    def finished(self, process: int, now: float) -> List[Message]:
        """A program ended with 0: it cannot start again without being done twice."""
        if self.over is None:
            self._finished = process, now + FINISHED_SECONDS
        return self._close(f"process {process} has finished")

    def stopping(self, process: int) -> List[Message]:
        """A container was asked to stop: eviction, suspension, deletion."""
        return self._close(f"process {process} was asked to stop")

    def ended(self, end: End, attempt: int, now: float) -> List[Message]:
        """A program failed in an attempt.

        Args:
            end: How.
            attempt: In which attempt.
            now: Monotonic, in seconds.
        """
        if self.over is not None or attempt != self.attempt - self._is_ending:
            return []
        # The first word of each stands: a program that failed is reported again when its process ends.
        self._ends.setdefault(end.process, end)
        if self._is_ending:
            return self._close(f"exit code {end.code} ends the job") if end.code in FATAL else []
        if (reason := self._final(end)) is not None:
            return self._close(reason)
        self._is_ending = True
        self._ready = set()
        self._deadline = now + READY_SECONDS
        is_quick = self._began is not None and now - self._began < STEADY_SECONDS
        self._quick = self._quick + 1 if is_quick else 0
        self.attempt += 1
        return [(RESTART, {"attempt": self.attempt})]

    def ready(self, process: int, attempt: int, now: float) -> List[Message]:
        """Nothing of a program is left, and its launcher waits for the next attempt."""
        if not self._is_ending or attempt != self.attempt:
            return []
        self._ready.add(process)
        if len(self._ready) == self._processes:
            pause = min(FIRST_PAUSE_SECONDS * 2 ** (self._quick - 1), LONGEST_PAUSE_SECONDS) if self._quick else 0.0
            self._go_at = now + pause
        return []

    def look(self, now: float) -> List[Message]:
        """What is due at this time."""
        if self.over is not None or not self._is_ending:
            return []
        if self._go_at is None:
            if now < self._deadline:
                return []
            missing = sorted(set(range(self._processes)) - self._ready)
            return self._close(f"process {missing[0]} was not ready within {READY_SECONDS:.0f} s")
        if now < self._go_at:
            return []
        self.causes.append(first_of(list(self._ends.values())))
        self._ends, self._is_ending, self._go_at, self._began = {}, False, None, now
        cause = self.causes[-1]
        end = {"process": cause.process, "code": cause.code, "at": cause.at, "line": cause.line}
        return [(GO, {"attempt": self.attempt, "limit": self._limit, "cause": str(cause), "end": end})]

    def early_finish(self, now: float) -> Optional[int]:
        """The process that finished some time ago, once; the others, which go on, may wait for it."""
        if self._finished is None or now < self._finished[1]:
            return None
        process, self._finished = self._finished[0], None
        return process

    def seconds(self, now: float) -> Optional[float]:
        """Until something is due; None: nothing is."""
        if self._finished is not None:
            return max(0.0, self._finished[1] - now)
        if self.over is not None or not self._is_ending:
            return None
        return max(0.0, (self._deadline if self._go_at is None else self._go_at) - now)

    def _final(self, end: End) -> Optional[str]:
        """Why this end is not tried again here; None: it is."""
        if end.code in FATAL:
            return f"exit code {end.code} ends the job"
        if end.code == ExitCode.FINISHED:
            return f"process {end.process} has finished"
        if self.attempt >= self._limit:
            return f"it started again {self._limit} times here, the limit"
        missing = sorted(set(range(self._processes)) - self._here)
        if missing:
            return f"the launcher of process {missing[0]} is not connected"
        return None

    def _close(self, reason: str) -> List[Message]:
        if self.over is not None:
            return []
        self.over = reason
        return [(OVER, {"reason": reason})]


def first_of(ends: Sequence[End]) -> End:
    """The end that the others follow from: the earliest of those that do not say that they follow from another.

    A process killed from outside goes before errors that its peers had because of it. Times are of the clocks of
    several hosts: where these differ by more than the ends do, another one is blamed, and nothing else changes.
    """
    own = [end for end in ends if not _CONSEQUENCE.match(end.line)]
    return min(own or ends, key=lambda end: end.at - KILLED_FIRST_SECONDS * (end.code in KILLED_FROM_OUTSIDE))
