"""What launcher 0 knows and decides from one attempt of a job to the next. Pure: messages and times in, one state out.

- Programs that connect to their launchers start together or not at all: a process that is missing, or runs something
  else, is named to all.
- The first failure of an attempt ends it on all hosts. A connection that breaks, or is silent for longer than the
  heartbeat limit, is a failure, too.
- The next attempt starts when no process of the last one is left on any host. A failure that is not retried in place
  ends the containers, each as its program ends, and the operator decides.
- Where Kubernetes replaces a lost pod, the next attempt waits for the launcher of the replacement, which reports that
  it has started no program. A launcher 0 that is a replacement learns from the others which attempt ran. If all are
  replacements, their job was suspended or lost all its pods, and they start as after one restart.
- Messages and ticks do not visit all processes, since there may be ten thousand.
"""

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from tpujob_contract.exit_codes import FATAL, KILLED, ExitCode
from tpujob_contract.process_ids import process_name
from tpujob_contract.reports import in_place
from tpujob_contract.reports.first_end import first_of
from tpujob_launcher.peers import messages, verdict
from tpujob_launcher.peers.attempt import CONFIGURATION_ERROR, TRAINER_ERROR, Attempt, Phase
from tpujob_launcher.peers.messages import FAILED, LOST, STALLED, End, Message, known_of
from tpujob_launcher.peers.timing import (
    FINISHED_SECONDS,
    FIRST_PAUSE_SECONDS,
    HEARTBEAT_SECONDS,
    LEAVE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    READY_SECONDS,
    RECONNECT_SECONDS,
    STEADY_SECONDS,
    named_after_seconds,
)


@dataclass
class Round:
    """The state of launcher 0 during the life of its container. `now` is monotonic, `at` Unix time, both in seconds."""

    hosts: List[str]
    """The host of each process; "" while it is not known, which `connected` changes."""
    hosts_per_slice: int
    limit: int
    """How often all may start again in these containers."""
    startup_seconds: float
    """How long programs wait for one another, and launchers for the replacement of a lost pod."""
    replaces_pods: bool = False
    """Whether Kubernetes replaces a lost pod."""
    is_replacement: bool = False
    """Whether this launcher 0 replaces an earlier one."""
    nonce: str = ""
    """A random text; programs that meet are given one of their attempt."""
    attempt: int = 0
    """The attempt in these containers that runs, or starts next."""
    phase: Phase = Phase.RUNNING
    over: Optional[str] = None
    """Why no further attempt starts here; None: one may."""
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    """Heartbeat limit of programs that connect."""
    limit_seconds: float = HEARTBEAT_SECONDS
    """Silence after which a launcher counts as lost."""
    is_difference_final: bool = True
    """Whether programs that run different things would do so in new pods, too."""
    now: Attempt = field(default_factory=Attempt)
    account: in_place.Account = field(default_factory=lambda: in_place.Account())
    """Restarts in these containers by cause, and why the last attempt ended. Starts with the name of this pod."""
    _connected: Set[int] = field(default_factory=lambda: {0})
    _seen: Set[int] = field(default_factory=lambda: {0})
    """Processes whose launcher has connected at least once."""
    _received_at: Dict[int, float] = field(default_factory=dict)
    """Of connected launchers that are not lost by silence; ordered, the longest silent first."""
    _broken_at: Dict[int, float] = field(default_factory=dict)
    """When connections broke; ordered."""
    _left_at: Dict[int, float] = field(default_factory=dict)
    """For each launcher that is not connected now: Unix time at which its connection was lost."""
    _given_up: List[int] = field(default_factory=list)
    """Processes lost by silence that `given_up` has not returned yet."""
    _finished: Optional[Tuple[int, float]] = None
    """The process that finished first, and when it is named if others still run."""
    _started_at: Optional[float] = None
    """When the running attempt was started in place; None: it is the containers' first."""
    _quick: int = 0
    """How many attempts in a row ended soon after their start in place."""
    _end_at: Optional[float] = None
    """When the attempt is ended on all hosts; None: nothing has happened to it."""
    _ready: Set[int] = field(default_factory=set)
    _ready_until: float = 0.0
    _replaced_until: Optional[float] = None
    _start_at: Optional[float] = None
    """When the next attempt starts; None: not all hosts are ready."""

    def __post_init__(self) -> None:
        """A replacement does not know yet which attempt ran."""
        if self.is_replacement and self.replaces_pods:
            self.phase = Phase.LEARNING

    @property
    def state(self) -> Mapping[str, Any]:
        """What all launchers are told, and `State.update` reads; without what is not known."""
        found = {
            "attempt": None if self.phase is Phase.LEARNING else self.attempt,
            "running": self.phase is Phase.RUNNING,
            "account": self.account or None,
            **self.now.state(self.hosts),
            "over": self.over,
        }
        return {name: value for name, value in found.items() if value is not None}

    @property
    def is_settled(self) -> bool:
        """Whether only messages change something soon."""
        is_over = self.over is not None
        return (is_over or (self.phase is Phase.RUNNING and self._end_at is None)) and self._finished is None

    @property
    def joined(self) -> int:
        """How many programs wait for the others; 0 once all have met."""
        return 0 if self.now.met else len(self.now.programs)

    def name(self, process: int) -> str:
        """A process by its number and host."""
        return process_name(process, self.hosts[process] if 0 <= process < len(self.hosts) else "")

    def connected(
        self, process: int, now: float, *, host: str = "", at: Optional[int] = 0, lost_at: float = 0.0
    ) -> None:
        """A launcher has connected.

        Args:
            process: Its process.
            now: Monotonic.
            host: Its host.
            at: The attempt that its program is in, or was in last; None: its container is new.
            lost_at: Unix time at which it lost launcher 0, or the present.
        """
        was_here, left_at = process in self._seen, self._left_at.pop(process, lost_at)
        self.hosts[process] = host
        self._connected.add(process)
        self._seen.add(process)
        self._note_received(process, now)
        if at is None:
            self.expect_other_images()
        if self.over is not None or not self.replaces_pods:
            return
        if self.phase is Phase.LEARNING:
            if at is None and len(self._connected) == len(self.hosts):
                self.now.lost_pods[0] = _lost_pod(0, lost_at, in_place.ALL_NEW)
                self._end_attempt(now)
            elif at is not None:
                self._follow(at, now, lost_at)
            return
        self._ready_until = max(self._ready_until, now + READY_SECONDS)
        if at is None:
            self._ready.discard(process)
            if was_here or self.phase is Phase.ENDING:
                self._lose_pod(process, left_at)
                if self.phase is Phase.RUNNING:
                    self._end_attempt(now)
        elif at > self._running:
            self._follow(at, now, lost_at)
        elif self.phase is Phase.RUNNING and not (self.now.ends or self.now.lost_pods or self._left_at):
            self._end_at = None

    def disconnected(self, process: int, now: float, at: float = 0.0, *, is_silent: bool = False) -> None:
        """The connection of a launcher is lost; `is_silent`: its machine did not answer, and may within its limit."""
        self._connected.discard(process)
        if not is_silent and self._received_at.pop(process, None) is not None:
            self._broken_at[process] = now
        if not self.replaces_pods:
            if self.phase is Phase.ENDING:
                self.close(f"the launcher of process {process} is gone")
            return
        self._ready.discard(process)
        self._start_at = None
        self._left_at.setdefault(process, at)
        self._end_soon(now)

    def receive(self, process: int, message: Message, now: float, at: float) -> bool:
        """Handles a report of a launcher; False: it is none."""
        kind, values = message
        attempt, of_running = messages.attempt_in(values), messages.attempt_in(values) == self._running
        if process:
            self._note_received(process, now)
        if kind == messages.HEARTBEAT:
            return True
        if kind == messages.BYE:
            self._leave(process, values, now, at)
        elif attempt is None:
            return False
        elif kind == messages.READY:
            self.ready(process, attempt, now)
        elif kind == messages.ENDED:
            end = messages.parse_end(process, values)
            if end is None:
                return False
            self.ended(end, attempt, now)
        elif kind not in (messages.JOINED, messages.PROGRESS, messages.ASKED):
            return False
        elif kind == messages.JOINED and of_running:
            self.join(process, values, now)
        elif kind == messages.PROGRESS and of_running:
            self.now.progressed(process, values.get("state"), now)
        elif of_running:
            self.asked(process, str(values.get("by", "")))
        return True

    def join(self, process: int, values: Mapping[str, Any], now: float) -> None:
        """A program waits for the others; `values` is what it reports about itself."""
        difference = self.now.join(verdict.program(process, self.hosts[process], values))
        if self.now.met or self.now.refused:
            return
        self.now.meet_until = self.now.meet_until or now + self.startup_seconds
        if difference:
            self.refuse(difference)
            if not self.is_difference_final:
                self.close(difference)
        elif len(self.now.programs) == len(self.hosts):
            # From here on the heartbeat limit of the programs applies; so far heartbeats came at a longer interval.
            self._received_at = dict.fromkeys(self._received_at, now)
            self.now.meet_until = None
            self.now.met = {"nonce": f"{self.nonce}{self.attempt:x}", "lead": self.hosts[0]}

    def refuse(self, words: str) -> None:
        """A process cannot join, for the reason in `words`: programs that wait for it end."""
        if not self.now.met and not self.now.refused:
            error = CONFIGURATION_ERROR if self.is_difference_final else TRAINER_ERROR
            self.now.refused = {"error": error, "message": words}

    def expect_other_images(self) -> None:
        """The replacement of a lost pod may have a newer image, which all have once all pods are replaced."""
        self.is_difference_final = not self.replaces_pods

    def asked(self, process: int, by: str) -> None:
        """A process was asked to stop, as by "SIGTERM"."""
        self.now.asked = self.now.asked or f"{messages.printable(by, 40)} at {self.name(process)}"

    def ended(self, end: End, attempt: int, now: float) -> None:
        """A program failed in an attempt."""
        if attempt == self._running and self.phase is not Phase.LEARNING:
            self._add(end, now)
            self._decide(end, now)

    def ready(self, process: int, attempt: int, now: float) -> None:
        """No process of a program is left, and its launcher waits for the next attempt."""
        if self.phase is not Phase.ENDING or attempt != self.attempt:
            return
        self._ready.add(process)
        if len(self._ready) == len(self.hosts):
            pause = min(FIRST_PAUSE_SECONDS * 2 ** (self._quick - 1), LONGEST_PAUSE_SECONDS) if self._quick else 0.0
            self._start_at = now + pause

    def finished(self, process: int, now: float) -> None:
        """A program ended with 0; a restart would run finished work twice."""
        if self.over is None:
            self._finished = process, now + FINISHED_SECONDS
        self.close(f"process {process} has finished")

    def stopping(self, process: int, now: float, at: float = 0.0) -> None:
        """A container was asked to stop: eviction, suspension, deletion."""
        if not self.replaces_pods:
            self.close(f"process {process} was asked to stop")
        elif process:  # the next launcher 0 reports the end of this one
            self._lose_pod(process, at, "it was asked to stop")
            self._end_all_or_soon(now)

    def close(self, reason: str) -> None:
        """No further attempt starts in these containers."""
        self.over = self.over or reason

    def tick(self, now: float, at: float) -> None:
        """Does what is due."""
        attempt = self.now
        if attempt.meet_until is not None and now >= attempt.meet_until and attempt.refused is None:
            size = self.hosts_per_slice
            positions = [f"slice {i // size}, host {i % size}" for i in range(len(self.hosts))]
            words = verdict.missing(positions, attempt.programs, self.startup_seconds)
            attempt.refused = {"error": "PeersMissingError", "message": words}
        self._notice_losses(now, at)
        if self.over is not None:
            return
        if self.phase is Phase.LEARNING and self._replaced_until is None:
            self._replaced_until = now + self.startup_seconds
        if self.phase is Phase.RUNNING and self._end_at is not None and now >= self._end_at:
            self._lose_pods(self._left_at)
            self._end_attempt(now)
        elif self.phase is Phase.ENDING and self._start_at is not None:
            if now >= self._start_at:
                self._start(now, at)
        else:
            self._stop_waiting(now)

    def seconds(self, now: float) -> float:
        """Until something may be due."""
        is_late = self.phase is Phase.ENDING and not self._connected <= self._ready  # a connected one is not ready
        waits = self._ready_until if is_late else self._replaced_until
        due: List[Optional[float]] = [self._start_at] if self._start_at is not None else [waits, self._end_at]
        due = [] if self.over is not None else due
        due += [self._finished[1] if self._finished else None, None if self.now.refused else self.now.meet_until]
        due += [moment + RECONNECT_SECONDS for moment in itertools.islice(self._broken_at.values(), 1)]
        due += [moment + self.limit_seconds for moment in itertools.islice(self._received_at.values(), 1)]
        return max(0.0, min((each for each in due if each is not None), default=math.inf) - now)

    def newly_silent(self, now: float) -> List[str]:
        """The processes that have become silent, each returned once."""
        found = [i for i in self._silent(now, self._named_after) if i not in self.now.silent]
        self.now.silent.update(found)
        return [self.name(i) for i in found]

    def given_up(self) -> List[int]:
        """Processes whose launchers count as lost by silence, each returned once: connections may still be open."""
        found, self._given_up = self._given_up, []
        return found

    def early_finish(self, now: float) -> Optional[int]:
        """A process that finished some time ago while others go on and may wait for it; returned once."""
        if self._finished is None or now < self._finished[1]:
            return None
        process, self._finished = self._finished[0], None
        return process

    def stragglers(self, now: float) -> str:
        """The processes behind the others while none makes progress; empty while none stands out."""
        return self.now.stragglers(now, self.heartbeat_seconds, len(self.hosts), self.name)

    @property
    def _running(self) -> int:
        """The attempt whose programs run, or have ended."""
        return self.attempt - (self.phase is Phase.ENDING)

    @property
    def _named_after(self) -> float:
        return named_after_seconds(self.heartbeat_seconds)

    def _silent(self, now: float, seconds: float) -> Dict[int, float]:
        """How long each launcher has been silent that has sent nothing for that time."""
        moments = itertools.takewhile(lambda pair: pair[1] <= now - seconds, self._received_at.items())
        return {process: now - moment for process, moment in moments}

    def _note_received(self, process: int, now: float) -> None:
        self._received_at.pop(process, None)
        self._received_at[process] = now
        self.now.silent.discard(process)
        self._broken_at.pop(process, None)

    def _forget(self, process: int) -> None:
        self._received_at.pop(process, None)
        self._broken_at.pop(process, None)

    def _leave(self, process: int, values: Mapping[str, Any], now: float, at: float) -> None:
        """A program has ended in order, or its container stops: the end of its launcher is not a loss."""
        self._forget(process)
        self.now.done.add(process)
        if values.get("why") == messages.FINISHED:
            self.finished(process, now)
        elif values.get("why") == messages.STOPPING:
            stopped_at = messages.time_in(values, "at")
            self.stopping(process, now, at if stopped_at is None else stopped_at)

    def _notice_losses(self, now: float, at: float) -> None:
        """Ends the attempt if connections are broken, or launchers silent, for too long: one end names all of them."""
        moments = itertools.takewhile(lambda pair: pair[1] <= now - RECONNECT_SECONDS, self._broken_at.items())
        lost, seconds = [process for process, _ in moments], 0.0
        if not lost:
            silent = self._silent(now, self.limit_seconds)
            lost, seconds = list(silent), max(silent.values(), default=0.0)
            self._given_up += lost
        if not lost:
            return
        for process in lost:
            self._forget(process)
        end = verdict.lost(lost, self.name, at, silent_seconds=seconds)
        is_first = self.now.first is None
        self._add(end, now)
        self.now.done.update(lost)
        if is_first and self.now.first is not None and self.phase is Phase.RUNNING:
            if self.replaces_pods:
                self._lose_pods({**dict.fromkeys(lost, at), **self._left_at})
            self._decide(end, now)

    def _add(self, end: End, now: float) -> None:
        """Adds an end to those of the attempt, and judges anew which one was first."""
        attempt = self.now
        if end.process in attempt.ends or end.process in attempt.done:
            return
        if end.kind != FAILED and attempt.first is not None:
            return  # most likely a consequence of that end
        if end.kind == FAILED and end.code not in FATAL:
            self._put_losses_first(end, now)
        self._received_at.pop(end.process, None)
        is_stall = end.kind == STALLED
        attempt.ends[end.process] = verdict.stalled(end, self.now.states, self.name) if is_stall else end
        attempt.first = first_of(attempt.ends.values(), known_of)

    def _put_losses_first(self, end: End, now: float) -> None:
        """Records the processes that are gone or silent as earlier ends: a peer's error is probably their effect."""
        silent = self._silent(now, self._named_after)
        lost = {**dict.fromkeys(self._broken_at, 0.0), **silent}
        if end.process in lost:
            return
        self._given_up += silent
        for process, seconds in lost.items():
            self._forget(process)
            if process not in self.now.ends and process not in self.now.done:
                gone = verdict.lost([process], self.name, end.at - 1.0, silent_seconds=seconds)
                self.now.ends[process] = gone

    def _decide(self, end: End, now: float) -> None:
        """Whether the attempt ends because of this end, and another one follows."""
        if end.code in FATAL:
            self.close(f"exit code {end.code} ends the job")
        if self.over is not None or self.phase is not Phase.RUNNING:
            return
        if end.code == ExitCode.FINISHED:
            self.close(f"process {end.process} has finished")
        elif self.attempt >= self.limit:
            self._end_attempt(now)
        elif not self.replaces_pods and len(self._connected) < len(self.hosts):
            missing = min(set(range(len(self.hosts))) - self._connected)
            self.close(f"the launcher of process {missing} is not connected")
        elif end.code == ExitCode.STOPPED and self.replaces_pods:
            self._end_all_or_soon(now)  # a peer may have been asked to stop, and others save now
        else:
            self._end_attempt(now)

    def _end_all_or_soon(self, now: float) -> None:
        """Ends the attempt if all its programs have ended, else when the other ones have had time to save."""
        if self.phase is Phase.RUNNING and len({*self.now.ends, *self.now.lost_pods}) == len(self.hosts):
            self._end_attempt(now)
        else:
            self._end_soon(now)

    def _end_soon(self, now: float) -> None:
        if self.phase is not Phase.ENDING and self._end_at is None and self.over is None:
            self._end_at = now + LEAVE_SECONDS

    def _lose_pod(self, process: int, at: float, how: str = "its container is gone") -> None:
        """A pod is lost, unless its program failed before, for a reason of its own."""
        end = self.now.ends.get(process)
        if end is None or end.kind == LOST or end.code == ExitCode.STOPPED:
            self.now.lost_pods.setdefault(process, _lost_pod(process, at, how))

    def _lose_pods(self, moments: Mapping[int, float]) -> None:
        for process, at in moments.items():
            self._lose_pod(process, at)

    def _follow(self, attempt: int, now: float, lost_at: float) -> None:
        """Ends an attempt that another launcher 0 has started, whose pod is therefore lost."""
        self.attempt, self.now = attempt, Attempt()
        self.now.ends[0] = self.now.first = verdict.lost([0], self.name, lost_at)
        self._lose_pod(0, lost_at)
        self._end_attempt(now)

    def _end_attempt(self, now: float) -> None:
        """Ends the attempt on all hosts; the next one follows, if there is any."""
        if self.over is not None:
            return
        if self.attempt >= self.limit:
            self.close(f"it started again {self.limit} times here, the limit")
            return
        self.phase, self._end_at, self._start_at, self._ready = Phase.ENDING, None, None, set()
        self._ready_until = now + READY_SECONDS
        self._replaced_until = now + self.startup_seconds if self.replaces_pods else None
        is_quick = self._started_at is not None and now - self._started_at < STEADY_SECONDS
        self._quick = self._quick + 1 if is_quick else 0
        self.attempt += 1

    def _start(self, now: float, at: float) -> None:
        """Starts the next attempt, and counts the restart."""
        first = first_of({**self.now.ends, **self.now.lost_pods}.values(), known_of)
        self.account = in_place.added(self.account, messages.last_end(first, at))
        self.phase, self._started_at, self._start_at, self._replaced_until = Phase.RUNNING, now, None, None
        self.now = Attempt()
        self.expect_other_images()
        self.heartbeat_seconds = self.limit_seconds = HEARTBEAT_SECONDS
        self._received_at, self._broken_at = dict.fromkeys(self._connected - {0}, now), {}

    def _stop_waiting(self, now: float) -> None:
        """Closes if a connected launcher is not ready in time, or a lost pod is not replaced in time."""
        is_ending = self.phase is Phase.ENDING
        is_over = self._replaced_until is not None and now >= self._replaced_until
        if not is_over and not (is_ending and now >= self._ready_until):
            return  # cheap: the lines below visit all processes
        missing = set(range(len(self.hosts))) - (self._ready if is_ending else self._connected)
        late = missing & self._connected
        if is_ending and late and now >= self._ready_until:
            self.close(f"process {min(late)} was not ready within {READY_SECONDS:.0f} s")
        elif missing and is_over:
            words = f"the pod of process {min(missing)} was not replaced within {self.startup_seconds:.0f} s"
            self.close(words)


def _lost_pod(process: int, at: float, how: str) -> End:
    return End(process, KILLED, at, how, is_lost=True)
