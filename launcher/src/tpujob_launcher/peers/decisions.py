"""Whether all start again, and when. Pure: launcher 0 tells what it hears, and says what it is told.

All programs of a job start together or not at all. The first failure of an attempt ends it everywhere; the next one
begins when nothing of the last is left anywhere. What cannot be tried again here ends the containers, one by one as
their programs end, and is the operator's decision.

Where Kubernetes replaces a lost pod, the loss is such a failure, and the next attempt waits for the launcher of the new
pod. It is a newcomer: it says that it has started no program. A launcher 0 that is one itself knows nothing, and learns
from the others which attempt it was. Where all are newcomers they begin as after one restart: their job was suspended,
or lost all its pods.
"""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Mapping, Optional, Set, Tuple

from tpujob_contract.exit_codes import FATAL, KILLED, KILLED_FIRST_SECONDS, KILLED_FROM_OUTSIDE, ExitCode
from tpujob_contract.reports.in_place import ALL_NEW
from tpujob_contract.reports.termination_message import named_in
from tpujob_launcher.child.ending import FINISHED_SECONDS
from tpujob_launcher.peers.messages import GO, OVER, RESTART, STALLED, End, Message

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 600.0
"""An attempt that lasted so long was no part of a crash loop: the next one follows without a pause."""
READY_SECONDS = 60.0
"""For what is left of an attempt to be gone everywhere: killed processes, and a TPU driver that lets go."""
LEAVE_SECONDS = 5.0
"""From the loss of a pod until the programs of the others are ended: a connection may be made again, and programs that
end since a peer was asked to stop save first. Kubernetes replaces a pod after 10 s at the earliest."""
LOST_FIRST_SECONDS = 30.0
"""By which the loss of a pod goes before the errors of its peers: a dead machine is silent for so long."""


class Decisions:
    """Of launcher 0, for as long as its container lives. `now` is monotonic, other moments are Unix time."""

    def __init__(
        self, processes: int, limit: int, *, wait_seconds: Optional[float] = None, is_newcomer: bool = False
    ) -> None:
        """Waits for everybody.

        Args:
            processes: Of the job.
            limit: How often all may start again in these containers.
            wait_seconds: How long the others wait for the pod that takes the place of a lost one; None: none does.
            is_newcomer: Whether this launcher 0 is in the place of an earlier one.
        """
        self.attempt = 0
        """Which attempt in these containers runs, or is about to."""
        self.over: Optional[str] = None
        """Why there is no further attempt here; None: there may be one."""
        self._processes = processes
        self._limit = limit
        self._wait_seconds = wait_seconds
        self.knows_nothing = is_newcomer and wait_seconds is not None
        """Whether this launcher 0 is a newcomer that nobody has told where the job is."""
        self._here: Set[int] = {0}
        self._met: Set[int] = {0}
        """Who was ever here."""
        self._lost_at: Dict[int, float] = {}
        """Unix time at which the connection to a launcher was lost that is not here."""
        self._ends: Dict[int, End] = {}
        self._ready: Set[int] = set()
        self._is_ending = False
        self._end_at: Optional[float] = None
        """When the attempt is ended everywhere, monotonic; None: nothing has happened to it."""
        self._began: Optional[float] = None
        """When the running attempt was started in place; None: it came with the containers."""
        self._quick = 0
        """How many attempts in a row ended soon after they were started in place."""
        self._deadline = 0.0
        self._wait_until: Optional[float] = None
        self._go_at: Optional[float] = None
        self._finished: Optional[Tuple[int, float]] = None
        """The process that finished first, and until when the others may go on before it is named."""

    @property
    def is_running(self) -> bool:
        """Whether all programs run, or may."""
        return not self._is_ending and not self.knows_nothing and self.over is None

    def arrived(self, process: int, now: float = 0.0, *, at: Optional[int] = 0, lost_at: float = 0.0) -> List[Message]:
        """A launcher has connected.

        Args:
            process: Whose.
            now: The present.
            at: The attempt that its program is in, or was in last; None: it is in a new container.
            lost_at: When it lost launcher 0, or the present.
        """
        was_here, went_at = process in self._met, self._lost_at.pop(process, lost_at)
        self._here.add(process)
        self._met.add(process)
        if self.over is not None or self._wait_seconds is None:
            return []
        if self.knows_nothing:
            if at is None and len(self._here) < self._processes:
                return []
            self.attempt = at or 0
            self._ends[0] = _lost(0, lost_at) if at is not None else _lost(0, lost_at, ALL_NEW)
            return self._restart(now)
        self._deadline = max(self._deadline, now + READY_SECONDS)
        if at is None:
            self._ready.discard(process)
            if not was_here and not self._is_ending:
                return []
            self._ends.setdefault(process, _lost(process, went_at))
            return [] if self._is_ending else self._restart(now)
        if at > self.attempt - self._is_ending:
            self.attempt = at  # it knows of more than the one that was heard first
            return self._restart(now)
        if not self._is_ending and not self._ends and not self._lost_at:
            self._end_at = None
        return []

    def gone(self, process: int, now: float = 0.0, at: float = 0.0) -> List[Message]:
        """The connection of a launcher is lost: its pod is gone, or its container has ended."""
        self._here.discard(process)
        if self._wait_seconds is None:
            return self.close(f"the launcher of process {process} is gone") if self._is_ending else []
        self._ready.discard(process)
        self._go_at = None
        self._lost_at.setdefault(process, at)
        self._end_soon(now)
        return []

    def lost(self, process: int, now: float, at: float) -> List[Message]:
        """All were told that this launcher is lost, and end their programs: it may be back, but not in this attempt."""
        if self.over is not None or self.knows_nothing or self._is_ending:
            return []
        self._name_lost({process: at, **self._lost_at})
        return self._restart(now)

    def finished(self, process: int, now: float) -> List[Message]:
        """A program ended with 0: it cannot start again without being done twice."""
        if self.over is None:
            self._finished = process, now + FINISHED_SECONDS
        return self.close(f"process {process} has finished")

    def stopping(self, process: int, now: float = 0.0, at: float = 0.0) -> List[Message]:
        """A container was asked to stop: eviction, suspension, deletion."""
        if self._wait_seconds is None:
            return self.close(f"process {process} was asked to stop")
        if process == 0:
            return []  # the launcher 0 that comes after this one will say so
        if process not in self._ends or self._ends[process].code == ExitCode.STOPPED:  # a program may say that first
            self._ends[process] = End(process, KILLED, at, "it was asked to stop", is_lost=True)
        if len(self._ends) == self._processes and self.is_running:
            return self._restart(now)
        self._end_soon(now)
        return []

    def ended(self, end: End, attempt: int, now: float) -> List[Message]:
        """A program failed in an attempt."""
        if self.over is not None or attempt != self.attempt - self._is_ending:
            return []
        # The first word of each stands: a program that failed is reported again when its process ends.
        self._ends.setdefault(end.process, end)
        if self._is_ending:
            return self.close(f"exit code {end.code} ends the job") if end.code in FATAL else []
        if (reason := self._final(end)) is not None:
            return self.close(reason)
        if end.code == ExitCode.STOPPED and self._wait_seconds is not None and len(self._ends) < self._processes:
            self._end_soon(now)  # maybe since a peer was asked to stop, and others save
            return []
        return self._restart(now)

    def close(self, reason: str) -> List[Message]:
        """No further attempt starts in these containers."""
        if self.over is not None:
            return []
        self.over = reason
        return [(OVER, {"reason": reason})]

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
        if self.over is not None:
            return []
        if self.knows_nothing and self._wait_until is None:
            self._wait_until = now + (self._wait_seconds or 0.0)
        if self._end_at is not None and now >= self._end_at and not self.knows_nothing:
            self._name_lost(self._lost_at)
            return self._restart(now)
        if self._go_at is None or not self._is_ending:
            return self._missing(now)
        if now < self._go_at:
            return []
        cause = first_of(self._ends.values())
        self._ends, self._is_ending, self._go_at, self._began = {}, False, None, now
        self._wait_until = None
        end: Dict[str, Any] = {"process": cause.process, "code": cause.code, "at": cause.at, "line": cause.line}
        end.update({"lost": True} if cause.is_lost else {})
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
        if self.over is not None:
            return None
        is_late = self._is_ending and not self._here <= self._ready  # one that is here is not ready
        wait_until = self._deadline if is_late else self._wait_until
        due = [self._go_at] if self._go_at is not None else [wait_until, self._end_at]
        return min((max(0.0, each - now) for each in due if each is not None), default=None)

    def _end_soon(self, now: float) -> None:
        if not self._is_ending and self._end_at is None and self.over is None:
            self._end_at = now + LEAVE_SECONDS

    def _name_lost(self, moments: Mapping[int, float]) -> None:
        for process, at in moments.items():
            self._ends.setdefault(process, _lost(process, at))

    def _restart(self, now: float) -> List[Message]:
        """Ends the attempt everywhere; the next one follows."""
        if self.attempt >= self._limit:
            return self.close(f"it started again {self._limit} times here, the limit")
        self.knows_nothing, self._is_ending, self._end_at, self._go_at = False, True, None, None
        self._ready = set()
        self._deadline = now + READY_SECONDS
        if self._wait_seconds is not None:
            self._wait_until = now + self._wait_seconds
        is_quick = self._began is not None and now - self._began < STEADY_SECONDS
        self._quick = self._quick + 1 if is_quick else 0
        self.attempt += 1
        return [(RESTART, {"attempt": self.attempt})]

    def _missing(self, now: float) -> List[Message]:
        """Ends the wait for those that are not ready, and for those that are not here, once it is over."""
        is_over = self._wait_until is not None and now >= self._wait_until
        if not is_over and not (self._is_ending and now >= self._deadline):
            return []  # before it looks at ten thousand of them
        missing = sorted(set(range(self._processes)) - (self._here if self.knows_nothing else self._ready))
        late = [process for process in missing if process in self._here]
        if self._is_ending and late and now >= self._deadline:
            return self.close(f"process {late[0]} was not ready within {READY_SECONDS:.0f} s")
        if missing and is_over:
            return self.close(f"the pod of process {missing[0]} was not replaced within {self._wait_seconds:.0f} s")
        return []

    def _final(self, end: End) -> Optional[str]:
        """Why this end is not tried again here; None: it is."""
        if end.code in FATAL:
            return f"exit code {end.code} ends the job"
        if end.code == ExitCode.FINISHED:
            return f"process {end.process} has finished"
        if self.attempt >= self._limit:
            return f"it started again {self._limit} times here, the limit"
        missing = sorted(set(range(self._processes)) - self._here)
        if missing and self._wait_seconds is None:
            return f"the launcher of process {missing[0]} is not connected"
        return None


def _lost(process: int, at: float, how: str = "its container is gone") -> End:
    return End(process, KILLED, at, how, is_lost=True)


def first_of(ends: Collection[End]) -> End:
    """The end that the others follow from: the earliest of those that do not say that they follow from another.

    A process killed from outside goes before errors that its peers had because of it, and so does a lost pod, the more
    so where its machine fell silent. Times are of the clocks of several hosts: where these differ by more than the ends
    do, another one is blamed, and nothing else changes.
    """
    # A stall names who is behind the others, and follows from no end of that process.
    own = [end for end in ends if end.kind == STALLED or named_in(end.line) in (None, end.process)]
    return min(own or ends, key=_order)


def _order(end: End) -> float:
    if end.is_lost:
        return end.at - LOST_FIRST_SECONDS
    return end.at - KILLED_FIRST_SECONDS * (end.code in KILLED_FROM_OUTSIDE)
