"""Decides whether and when all programs of a job start again. Pure: events come in, messages for all launchers go out.

All programs of a job start together or not at all. The first failure of an attempt ends it on all hosts; the next one
starts when no process of the last is left on any host. A failure that is not retried in place ends the containers, each
as its program ends, and the operator decides.

Where Kubernetes replaces a lost pod, the loss is such a failure, and the next attempt waits for the launcher of the new
pod. That launcher is a newcomer: it reports that it has started no program. A launcher 0 that is a newcomer learns from
the others which attempt ran. If all are newcomers, their job was suspended or lost all its pods, and they start as
after one restart.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from tpujob_contract.exit_codes import FATAL, KILLED, ExitCode
from tpujob_contract.reports.first_end import first_of
from tpujob_contract.reports.in_place import ALL_NEW
from tpujob_launcher.child.ending import FINISHED_SECONDS
from tpujob_launcher.peers.messages import GO, OVER, RESTART, End, Message, known_of

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
STEADY_SECONDS = 600.0
"""An attempt that lasted this long is not part of a crash loop: the next one follows without a pause."""
READY_SECONDS = 60.0
"""Time for all hosts to end what is left of an attempt: killed processes, and a TPU driver that releases its chips."""
LEAVE_SECONDS = 5.0
"""From the loss of a pod until the programs of the others are ended: the connection may come back, and programs that
end because a peer was asked to stop save first. Kubernetes replaces a pod after 10 s at the earliest."""


class Decisions:
    """The decisions of launcher 0 during the life of its container. `now` is monotonic, other moments are Unix time."""

    def __init__(
        self, processes: int, limit: int, *, wait_seconds: Optional[float] = None, is_newcomer: bool = False
    ) -> None:
        """Starts with the first attempt.

        Args:
            processes: How many the job has.
            limit: How often all may start again in these containers.
            wait_seconds: How long the others wait for the replacement of a lost pod; None: lost pods are not replaced.
            is_newcomer: Whether this launcher 0 replaces an earlier one.
        """
        self.attempt = 0
        """The attempt in these containers that runs, or starts next."""
        self.over: Optional[str] = None
        """Why no further attempt starts here; None: one may."""
        self._processes = processes
        self._limit = limit
        self._wait_seconds = wait_seconds
        self.knows_nothing = is_newcomer and wait_seconds is not None
        """Whether this launcher 0 is a newcomer that does not know yet which attempt the job is in."""
        self._here: Set[int] = {0}
        self._met: Set[int] = {0}
        """Processes whose launcher has connected at least once."""
        self._lost_at: Dict[int, float] = {}
        """For each launcher that is not connected now: Unix time at which its connection was lost."""
        self._ends: Dict[int, End] = {}
        self._ready: Set[int] = set()
        self._is_ending = False
        self._end_at: Optional[float] = None
        """When the attempt is ended on all hosts, monotonic; None: nothing has happened to it."""
        self._began: Optional[float] = None
        """When the running attempt was started in place; None: it is the containers' first."""
        self._quick = 0
        """How many attempts in a row ended soon after their start in place."""
        self._deadline = 0.0
        self._wait_until: Optional[float] = None
        self._go_at: Optional[float] = None
        self._finished: Optional[Tuple[int, float]] = None
        """The process that finished first, and when it is named if others still run."""

    @property
    def is_running(self) -> bool:
        """Whether all programs run, or may start."""
        return not self._is_ending and not self.knows_nothing and self.over is None

    def arrived(self, process: int, now: float = 0.0, *, at: Optional[int] = 0, lost_at: float = 0.0) -> List[Message]:
        """A launcher has connected.

        Args:
            process: Its process.
            now: Monotonic.
            at: The attempt that its program is in, or was in last; None: its container is new.
            lost_at: Unix time at which it lost launcher 0, or the present.
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
            self.attempt = at  # it knows a later attempt than the launcher that answered first
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
        """This launcher was declared lost, so all end their programs; it may come back, but not in this attempt."""
        if self.over is not None or self.knows_nothing or self._is_ending:
            return []
        self._name_lost({process: at, **self._lost_at})
        return self._restart(now)

    def finished(self, process: int, now: float) -> List[Message]:
        """A program ended with 0; a restart would run finished work twice."""
        if self.over is None:
            self._finished = process, now + FINISHED_SECONDS
        return self.close(f"process {process} has finished")

    def stopping(self, process: int, now: float = 0.0, at: float = 0.0) -> List[Message]:
        """A container was asked to stop: eviction, suspension, deletion."""
        if self._wait_seconds is None:
            return self.close(f"process {process} was asked to stop")
        if process == 0:
            return []  # the next launcher 0 reports it
        if process not in self._ends or self._ends[process].code == ExitCode.STOPPED:  # as the program reported first
            self._ends[process] = End(process, KILLED, at, "it was asked to stop", is_lost=True)
        if len(self._ends) == self._processes and self.is_running:
            return self._restart(now)
        self._end_soon(now)
        return []

    def ended(self, end: End, attempt: int, now: float) -> List[Message]:
        """A program failed in an attempt."""
        if self.over is not None or attempt != self.attempt - self._is_ending:
            return []
        # The first report of each process counts: a failed program is reported again when its process ends.
        self._ends.setdefault(end.process, end)
        if self._is_ending:
            return self.close(f"exit code {end.code} ends the job") if end.code in FATAL else []
        if (reason := self._final(end)) is not None:
            return self.close(reason)
        if end.code == ExitCode.STOPPED and self._wait_seconds is not None and len(self._ends) < self._processes:
            self._end_soon(now)  # a peer may have been asked to stop, and others save now
            return []
        return self._restart(now)

    def close(self, reason: str) -> List[Message]:
        """No further attempt starts in these containers."""
        if self.over is not None:
            return []
        self.over = reason
        return [(OVER, {"reason": reason})]

    def ready(self, process: int, attempt: int, now: float) -> List[Message]:
        """No process of a program is left, and its launcher waits for the next attempt."""
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
        cause = first_of(self._ends.values(), known_of)
        self._ends, self._is_ending, self._go_at, self._began = {}, False, None, now
        self._wait_until = None
        end: Dict[str, Any] = {"process": cause.process, "code": cause.code, "at": cause.at, "line": cause.line}
        end.update({"lost": True} if cause.is_lost else {})
        return [(GO, {"attempt": self.attempt, "limit": self._limit, "cause": str(cause), "end": end})]

    def early_finish(self, now: float) -> Optional[int]:
        """A process that finished some time ago while others go on and may wait for it; returned once."""
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
        is_late = self._is_ending and not self._here <= self._ready  # a connected launcher is not ready
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
        """Ends the attempt on all hosts; the next one follows."""
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
        """Closes if a connected launcher is not ready in time, or a lost pod is not replaced in time."""
        is_over = self._wait_until is not None and now >= self._wait_until
        if not is_over and not (self._is_ending and now >= self._deadline):
            return []  # cheap: the lines below look at all processes, of which there may be ten thousand
        missing = sorted(set(range(self._processes)) - (self._here if self.knows_nothing else self._ready))
        late = [process for process in missing if process in self._here]
        if self._is_ending and late and now >= self._deadline:
            return self.close(f"process {late[0]} was not ready within {READY_SECONDS:.0f} s")
        if missing and is_over:
            return self.close(f"the pod of process {missing[0]} was not replaced within {self._wait_seconds:.0f} s")
        return []

    def _final(self, end: End) -> Optional[str]:
        """Why this end is not retried in place; None: it is."""
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
