"""When a program is asked to end, and when it is killed: the events of one program, and what is due. Pure.

- After a stop signal it has the grace period less a margin.
- When it has failed and peers wait for it, its exit handlers have a few seconds.
- When the program of another host has failed, it has a moment to end by itself, then is asked to end, then is killed.
- When a signal has stopped it, or it prints nothing for `silenceSeconds`, it is killed, since its peers cannot do that.
"""

import enum
import signal
from typing import Dict, List, Optional, Tuple

from tpujob_contract.environment import margin_seconds
from tpujob_contract.exit_codes import KILLED, ExitCode
from tpujob_launcher.peers.timing import FINISHED_SECONDS
from tpujob_launcher.supervise.outcome import ExitResult
from tpujob_launcher.supervise.program_end import ProgramEnd

LEFTOVER_SECONDS = 5.0
"""How long a process may outlive the program that started it. Short: a restart of the whole job waits for it."""

FROZEN_SECONDS = 60.0
"""How long a signal may stop a program that has peers. Longer than the trainer's heartbeat limit, after which its peers
have ended."""

ASKED_SECONDS, ASKED_TO_START_AGAIN_SECONDS = 5.0, 1.0
"""How long a program may take to end once it is asked to because that of another host has failed. JAX catches SIGTERM,
so many programs use all of it; the next attempt waits for them."""

OWN_END_SECONDS = 1.0
"""How long a program has before it is asked to end: what fails on one host often fails on all, and then each has an
error and exit code of its own, which may be fatal."""

SAVING_SECONDS = 30.0
"""How long a program may take to save where all start again: a new pod takes as long, and launcher 0 waits a minute."""

DRAIN_SECONDS, DRAIN_TO_START_AGAIN_SECONDS = 60.0, 20.0
"""How long a reader of the output may take to empty the pipe after all processes have ended. Where all start again,
launcher 0 waits a minute for that, for programs that save, and for leftover processes."""

SPEAKING_SECONDS = 8.0
"""How long a program that is connected to its launcher may take to end by itself: it writes its last report."""

_NAME_SECONDS = 1.0
"""How long a program may take to end after its last traceback before that is logged."""

_STACKS_SECONDS = 2.0
"""How long a silent Python program may take to write the stacks of its threads before it is killed."""

_KILLED_TURN_SECONDS = 0.1


class Act(enum.Enum):
    """What a supervisor does."""

    NAME_FAILURE = enum.auto()
    """Log that the program has failed, and is in its exit handlers."""
    NAME_SILENCE = enum.auto()
    """Log that it has printed nothing for `silenceSeconds`."""
    NAME_FINISHED = enum.auto()
    """Log that it reached its end some time ago, and is in its exit handlers."""
    ASK = enum.auto()
    """Ask it to end (SIGTERM)."""
    SHOW_STACKS = enum.auto()
    """Have it write the stacks of its threads; a Python program with our start-up hook does."""
    END_FAILED = enum.auto()
    """The time of its exit handlers is over: one of the two below follows."""
    END_FROZEN = enum.auto()
    """No signal has continued it: it is killed."""
    KILL_FAILED = enum.auto()
    """Kill the process that failed, a command of a shell script, alone."""
    KILL = enum.auto()
    """Kill the program with all that it started."""


class Ending:
    """The end of one program. Moments are monotonic, in seconds, except `at`, which is Unix time."""

    def __init__(
        self,
        child: int,
        *,
        grace_seconds: float,
        exit_seconds: Optional[float] = None,
        silence_seconds: Optional[float] = None,
    ) -> None:
        """Starts with a running program.

        Args:
            child: The process of the program.
            grace_seconds: Time from the stop signal to SIGKILL, as Kubernetes counts it.
            exit_seconds: How long the program may take to end once it has failed; None: without limit.
            silence_seconds: How long it may print nothing; None: without limit.
        """
        self.failure: Optional[ProgramEnd] = None
        """The last failure that the program, or a command of a shell script, reported."""
        self.frozen: Optional[ProgramEnd] = None
        self.finished: Optional[ProgramEnd] = None
        self.stop_signal: Optional[int] = None
        self.ended_by_peer = False
        """Whether it has to end because the program of another host has failed."""
        self._asked_for_restart = False
        """Whether it had asked for another start (exit code 75) before its peer failed."""
        self.is_killed = False
        self._child = child
        self._margin = margin_seconds(grace_seconds)
        self._patience = grace_seconds - self._margin
        self.exit_seconds = exit_seconds
        self.silence_seconds = silence_seconds
        self._diagnostics: List[str] = []
        self._asked_at = self._stopped_at = 0.0
        self._stop_deadline: Optional[float] = None
        self._due: Dict[Act, float] = {}

    def reported(self, end: ProgramEnd, now: float) -> bool:
        """The program reports its end; returns whether the other launchers need to know at once."""
        if self._stop_deadline is not None:
            # It ends because it was asked to, or its peers were: not a failure of its own, and no longer wait.
            if end.is_failure and self.exit_seconds is not None:
                self._stop_deadline = min(self._stop_deadline, now + self.exit_seconds)
            elif not end.is_failure and end.pid == self._child:
                self.finished = end
            return False
        is_own = end.pid == self._child
        if end.is_failure:
            self.failure = end
        if self.exit_seconds is not None:  # otherwise no peer waits for it
            if end.is_failure:
                self._due[Act.NAME_FAILURE] = now + _NAME_SECONDS
                self._due[Act.END_FAILED] = now + self.exit_seconds
            elif is_own:
                self.finished = end
                self._due[Act.NAME_FINISHED] = now + FINISHED_SECONDS
        return end.is_failure and is_own and not self.ended_by_peer and not end.is_immediate

    def froze(self, now: float, at: float) -> bool:
        """A signal has stopped the program; returns whether that is new."""
        if self.frozen is not None:
            return False
        self.frozen = ProgramEnd(self._child, KILLED, at, "frozen: a signal (SIGSTOP) has stopped it")
        if self.exit_seconds is not None:
            self._due[Act.END_FROZEN] = now + FROZEN_SECONDS
        return True

    def thawed(self) -> None:
        """A signal has continued it."""
        self.frozen = None
        self._due.pop(Act.END_FROZEN, None)

    def asked_to_stop(self, number: int, now: float, at: float) -> bool:
        """A stop signal was received; returns whether it is the first."""
        if self.stop_signal is not None:
            return False
        self.stop_signal, self._asked_at, self._stopped_at = number, now, at
        self._stop_deadline = now + self._patience
        return True

    def peer_failed(
        self, following: Optional[Tuple[int, str]], *, is_connected: bool, is_silent: bool, in_place: bool, now: float
    ) -> None:
        """The program of another host has failed. This one cannot take another step, so it has to end.

        Args:
            following: Exit code and message that follow for this program.
            is_connected: Whether it is connected to its launcher, and learns of the failure by itself.
            is_silent: Whether it spoke before and has stopped.
            in_place: Whether all may start again in their containers.
            now: Monotonic.
        """
        self.ended_by_peer = True
        self._asked_for_restart = self.finished is not None and self.finished.code == ExitCode.STOPPED
        if is_silent:
            self._diagnostics.append("the program no longer answers its launcher, or is frozen: killed")
            self._due[Act.SHOW_STACKS] = now
        if is_connected:
            self._due[Act.KILL] = now + SPEAKING_SECONDS
            return
        own, seconds = (0.0, ASKED_TO_START_AGAIN_SECONDS) if in_place else (OWN_END_SECONDS, ASKED_SECONDS)
        if following is not None and following[0] == ExitCode.STOPPED:  # it may save
            own, seconds = 0.0, min(self._patience, SAVING_SECONDS) if in_place else self._patience
        self._due[Act.ASK] = now + own
        self._due[Act.KILL] = now + own + seconds

    def look(self, now: float, at: float, printed_at: float) -> List[Act]:
        """The acts that are due. `printed_at`: when the program last printed something."""
        acts = [act for act, moment in self._due.items() if now >= moment]
        for act in acts:
            del self._due[act]
        if Act.END_FROZEN in acts:
            self._diagnostics.append(f"frozen for {FROZEN_SECONDS:.0f} s: killed")
            acts.append(Act.KILL)
        if Act.END_FAILED in acts and self.failure is not None:
            self._diagnostics.append(f"still running {self.exit_seconds:.0f} s after it failed: killed")
            acts.append(Act.KILL if self.failure.pid == self._child else Act.KILL_FAILED)
        silent_at = self._silent_at(printed_at)
        if silent_at is not None and now >= silent_at:
            # Dated from the start of its silence: of several silent processes the first is the cause, the others wait.
            error = f"it has printed nothing for {self.silence_seconds:.0f} s (silenceSeconds)"
            self.failure = ProgramEnd(self._child, ExitCode.STALLED, at - (now - printed_at), error)
            acts += [Act.NAME_SILENCE, Act.SHOW_STACKS]
            self._due[Act.KILL] = now + _STACKS_SECONDS
        if self._stop_deadline is not None and now >= self._stop_deadline:
            if not self.is_killed:
                name, seconds = signal.Signals(self.stop_signal or 0).name, now - self._asked_at
                self._diagnostics.append(f"still running {seconds:.0f} s after {name}: killed")
            acts.append(Act.KILL)
        self.is_killed = self.is_killed or Act.KILL in acts
        return acts

    def seconds(self, now: float, printed_at: float) -> Optional[float]:
        """Time until something may be due; None: nothing is."""
        if self.is_killed:
            return _KILLED_TURN_SECONDS
        moments = [*self._due.values(), self._stop_deadline, self._silent_at(printed_at)]
        return min((max(0.0, moment - now) for moment in moments if moment is not None), default=None)

    def leftover_seconds(self, now: float) -> float:
        """Time for leftover processes to end, within the rest of the grace period."""
        left = LEFTOVER_SECONDS if self._stop_deadline is None else self._stop_deadline - now
        return min(LEFTOVER_SECONDS, self._patience, left)

    def drain_seconds(self, *, in_place: bool) -> float:
        """Time for a reader of the output once all processes have ended. `in_place`: all may start again."""
        if self.stop_signal is not None:
            return self._margin / 2
        return DRAIN_TO_START_AGAIN_SECONDS if in_place else DRAIN_SECONDS

    def result(self, code: int, at: float, following: Optional[Tuple[int, str]]) -> ExitResult:
        """How the program ended, once its process has.

        Args:
            code: Exit code as a shell counts it.
            at: When the process ended.
            following: Exit code and message of a program that ends because of another host's.
        """
        ended = ProgramEnd(self._child, code, at)
        failure = self.failure or self.frozen
        if failure is None and self.stop_signal is None and self.exit_seconds is not None and not self.ended_by_peer:
            failure = ended  # its time is compared with the reports of the peers
        failure = failure if ended.is_failure else None
        # Killed, or aborted in an exit handler: the program itself had reported another code.
        meant = failure.code if failure and code > 128 else code
        if self.stop_signal is not None and self.is_killed and self.finished is not None:
            meant = self.finished.code  # it reached its end as asked; its exit handlers waited for other processes
        if self._asked_for_restart:
            meant = ExitCode.STOPPED  # the peer failed because this one had left
        # Not killed by this launcher: a peer may have noticed and reported that before its end was seen here.
        is_cause = meant == KILLED and not self.is_killed
        return ExitResult(
            meant,
            tuple(self._diagnostics),
            stop_signal=self.stop_signal,
            stopped_at=self._stopped_at or (self.finished or ended).at,
            failure=failure,
            ended_by_peer=self.ended_by_peer and not is_cause and not self._asked_for_restart,
            following=None if self._asked_for_restart else following,
        )

    def _silent_at(self, printed_at: float) -> Optional[float]:
        """When it counts as silent; None: never, or it is ending."""
        is_ending = self._stop_deadline or self.failure or self.frozen or self.finished or self.ended_by_peer
        return None if self.silence_seconds is None or is_ending else printed_at + self.silence_seconds
