"""One program, run as process 1 should run it: signals reach it, orphans are reaped, nothing of it remains.

- It has a session and process group of its own. Signals go to the group, once each.
- After a stop signal it has the grace period less a margin; then it and all that it started are killed.
- When it has failed and others wait for it, its exit handlers get a few seconds; then it is killed as well.
- When it has ended by itself, what it left behind is asked to end, and killed a few seconds later.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Set, Tuple

from tpujob_contract.exit_codes import KILLED, ExitCode
from tpujob_contract.grace import margin_seconds
from tpujob_launcher.child.output import Output, Tail
from tpujob_launcher.child.processes import adopt_orphans, command_line, descendants, die_with, is_stopped, reap, send
from tpujob_launcher.child.program_end import ProgramEnd, ProgramEnds
from tpujob_launcher.child.signals import FORWARDED, STOP, SignalQueue

logger = logging.getLogger(__name__)

LEFTOVER_SECONDS = 5.0
"""How long a process may outlive the program that started it. Short: a restart of the whole job waits for it."""

FROZEN_SECONDS = 60.0
"""How long a program that has peers may be stopped by a signal. Longer than the trainer's heartbeat, by which its peers
end before."""

TOLD_SECONDS, TOLD_TO_START_AGAIN_SECONDS = 5.0, 1.0
"""How long a program may take to end once it is asked to since another host's has failed. JAX catches SIGTERM, so that
many take it whole; a next attempt of all hosts waits for them."""

OWN_END_SECONDS = 1.0
"""How long a program has before it is asked to: what fails on one host often fails on all, and then each has its own
error and exit code, which may be a final one."""

SAVING_SECONDS = 30.0
"""How long a program may take to save where all start again: a new pod takes as long, and launcher 0 waits a minute."""

SPEAKING_SECONDS = 8.0
"""How long a program that speaks with its launcher may take to end by itself: it writes down what it knows."""

_NAME_SECONDS = 1.0
"""How long a program may take to end after its last traceback before there is anything to say about that."""

FINISHED_SECONDS = 60.0
"""How long a program that has peers may be in its exit handlers, without a failure, before that is reported."""

_KILLED_SECONDS = 1.0
"""How long a killed process may take to disappear. Longer means that it hangs in a driver, where no signal helps."""

_STACKS_SECONDS = 2.0
"""How long a silent Python program may take to write the stacks of its threads before it is killed."""

_DRAIN_SECONDS = 60.0
"""How long a reader of the output may take for what a pipe holds, after everything has ended by itself."""


@dataclass(frozen=True)
class ExitResult:
    """How a program ended."""

    code: int
    """Its exit code as a shell counts it: 128 + n for death by signal n."""
    diagnostics: Tuple[str, ...] = ()
    """What the code does not tell, for the termination message."""
    output: bytes = b""
    """The last lines of its output, if they were kept."""
    stop_signal: Optional[int] = None
    """The signal that requested the stop, if any."""
    stopped_at: float = 0.0
    """When that came, or when the program ended by itself: Unix time."""
    failure: Optional[ProgramEnd] = None
    """With which error the program says that it ended."""
    was_told: bool = False
    """Whether it was ended since the program of another host had failed."""
    following: Optional[Tuple[int, str]] = None
    """Exit code and words of a program that ends because of another host's; None: no other has failed before."""


class Others(Protocol):
    """The launchers of the other hosts."""

    @property
    def has_to_end(self) -> bool:
        """Whether this program has to end, since another one failed."""

    @property
    def following(self) -> Optional[Tuple[int, str]]:
        """Exit code and words of this program, should it end because of another one."""

    @property
    def speaks(self) -> bool:
        """Whether the program hears of an end by itself."""

    @property
    def is_silent(self) -> bool:
        """Whether the program has spoken, and does so no longer."""

    @property
    def in_place(self) -> int:
        """How often all may start again."""

    def fileno(self) -> int:
        """For `select`."""

    def was_asked(self, by: str) -> None:
        """This container was asked to stop."""

    def fail(self, code: int, at: float, line: str) -> None:
        """The program has failed, and may take its time to end: exit code, Unix time, cause."""

    def step(self) -> None:
        """Handles what has come, and what is due."""

    def seconds(self) -> Optional[float]:
        """Until something is due; None: nothing is."""


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    signals: SignalQueue,
    *,
    grace_seconds: float,
    keep_output: bool,
    on_start: Optional[Callable[[int], None]] = None,
    ends: Optional[ProgramEnds] = None,
    exit_seconds: Optional[float] = None,
    others: Optional[Others] = None,
    silence_seconds: Optional[float] = None,
    on_end: Optional[Callable[[ExitResult], None]] = None,
) -> ExitResult:
    """Runs a command until neither it nor anything that it started is alive.

    Args:
        command: Program and arguments.
        environ: Its environment.
        signals: Receives this process's signals.
        grace_seconds: Time from the stop signal to SIGKILL, as Kubernetes counts it.
        keep_output: Pass the output through pipes, so that its last lines are known. Otherwise the program writes
            to our stdout and stderr themselves, and sees a terminal where there is one.
        on_start: Called with the number of the process once the program runs; may start threads.
        ends: Receives what the program says of its end.
        exit_seconds: How long the program may take to end once it has failed; None: as long as it likes.
        others: The launchers of the other hosts, which may have it ended.
        silence_seconds: How long the program may print nothing before it is ended; None: as long as it likes.
        on_end: Called once the program has ended, while what it left behind may still be there.

    Raises:
        OSError: The command could not be started.
    """
    adopt_orphans()
    output = Output() if keep_output or silence_seconds is not None else None
    parent = os.getpid()
    try:
        # preexec_fn is safe here: there is no thread yet.
        child = subprocess.Popen(
            command,
            env=environ,
            stdout=output.stdout if output else None,
            stderr=output.stderr if output else None,
            start_new_session=True,
            preexec_fn=lambda: die_with(parent),
        )
    finally:
        if output:
            output.start()
    if on_start:
        on_start(child.pid)
    supervision = _Supervision(child, signals, grace_seconds, ends, exit_seconds, others)
    if output is not None and silence_seconds is not None:
        supervision.limit_silence(output.tail, silence_seconds)
    result = supervision.run()
    if on_end:
        on_end(result)
    left = supervision.end_leftovers()
    seconds = margin_seconds(grace_seconds) / 2 if result.stop_signal else _DRAIN_SECONDS
    if output and not output.finish(seconds, others.step if others else lambda: None):
        logger.warning("nobody reads the output: its end is lost")
    return dataclasses.replace(
        result, diagnostics=(*result.diagnostics, *left), output=output.tail.last_lines() if output else b""
    )


class _Supervision:
    """One program from its start to its end: signals sent, output, and the grace period that is left."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        signals: SignalQueue,
        grace_seconds: float,
        ends: Optional[ProgramEnds],
        exit_seconds: Optional[float],
        others: Optional[Others],
    ) -> None:
        self._child = child
        self._signals = signals
        self._patience = grace_seconds - margin_seconds(grace_seconds)
        self._ends = ends
        self._exit_seconds = exit_seconds
        self._diagnostics: List[str] = []
        self._stop_signal: Optional[int] = None
        self._asked_at = self._stopped_at = 0.0
        self._stop_deadline: Optional[float] = None
        self._failure: Optional[ProgramEnd] = None
        self._frozen: Optional[ProgramEnd] = None
        self._finished: Optional[ProgramEnd] = None
        self._alarms: Dict[Callable[[], None], float] = {}
        self._is_killed = False
        self._others = others
        self._was_told = False

    def limit_silence(self, tail: Tail, seconds: float) -> None:
        """Has the program ended once it has printed nothing for so long."""

        def look() -> None:
            silent_since = tail.heard_at
            if time.monotonic() < silent_since + seconds:
                self._alarms[look] = silent_since + seconds
            elif not (self._stop_deadline or self._failure or self._frozen or self._finished or self._was_told):
                self._end_silent(silent_since, seconds)

        self._alarms[look] = tail.heard_at + seconds

    def run(self) -> ExitResult:
        """Returns how it ended; what it started may still be there."""
        child = self._child
        while child.returncode is None:
            received = self._signals.wait(self._seconds(), *[each for each in (self._ends, self._others) if each])
            # Reaped first: a signal that comes after the end was not heard by the program, and must not change what the
            # end means.
            child.returncode = reap().get(child.pid)
            self._hear_program()
            if child.returncode is not None:
                self._hear_last_words()
                break
            if signal.SIGCHLD in received:
                self._look_whether_frozen()
            self._pass_on(received)
            self._hear_others()
            self._look_at_clock()
        ended = ProgramEnd(child.pid, child.returncode, time.time())
        failure = self._failure or self._frozen
        if failure is None and self._stop_signal is None and self._exit_seconds is not None and not self._was_told:
            failure = ended  # when it was, to be compared with what the peers say
        failure = failure if failure is not None and ended.is_failure else None
        # Killed, or aborted in an exit handler: that is not how the program meant to end.
        code = failure.code if failure and child.returncode > 128 else child.returncode
        if self._stop_signal is not None and self._is_killed and self._finished is not None:
            code = self._finished.code  # as it was asked to; its exit handlers waited for processes that went on
        # Killed by somebody else: a peer may have noticed that, and said so, before its end was seen here.
        is_cause = code == KILLED and not self._is_killed
        was_told = self._was_told and not is_cause
        return ExitResult(
            code,
            tuple(self._diagnostics),
            stop_signal=self._stop_signal,
            stopped_at=self._stopped_at or (self._finished or ended).at,
            failure=failure,
            was_told=was_told,
            following=self._others.following if self._others else None,
        )

    def _hear_last_words(self) -> None:
        """What the program has said to its launcher before it ended."""
        if self._others is not None:
            self._others.step()

    def _hear_others(self) -> None:
        if self._others is None:
            return
        self._others.step()
        # Asked to stop itself, it saves, and has the grace period for that.
        if self._others.has_to_end and not self._was_told and self._stop_signal is None:
            self._was_told = True
            self._end_since_told()

    def _end_since_told(self) -> None:
        """Ends the program. It cannot take another step, and what it saves now would be of a run that is over."""
        assert self._others is not None
        following = self._others.following
        if following is not None:
            logger.warning("the program has to end: %s", following[1])
        if self._others.is_silent:
            self._diagnostics.append("the program no longer answers its launcher, or is frozen: killed")
        if self._others.speaks:
            self._alarms[self._kill] = time.monotonic() + SPEAKING_SECONDS
            return
        may_save = following is not None and following[0] == ExitCode.STOPPED
        own, seconds = (0.0, TOLD_TO_START_AGAIN_SECONDS) if self._others.in_place else (OWN_END_SECONDS, TOLD_SECONDS)
        if may_save:
            own, seconds = 0.0, min(self._patience, SAVING_SECONDS) if self._others.in_place else self._patience
        now = time.monotonic()
        self._alarms[self._ask_to_end] = now + own
        self._alarms[self._kill] = now + own + seconds

    def _ask_to_end(self) -> None:
        send(self._child.pid, signal.SIGTERM, group=True)

    def end_leftovers(self) -> Tuple[str, ...]:
        """Ends what the program left behind, and names what had to be killed."""
        return _end_leftovers(self._signals, self._leftover_seconds(), self._others)

    def _leftover_seconds(self) -> float:
        """What processes that the program left behind still have: no more than the grace period has."""
        left = LEFTOVER_SECONDS if self._stop_deadline is None else self._stop_deadline - time.monotonic()
        return min(LEFTOVER_SECONDS, self._patience, left)

    def _seconds(self) -> Optional[float]:
        if self._is_killed:
            return 0.1
        stop = [] if self._stop_deadline is None else [self._stop_deadline]
        nearest = min([*stop, *self._alarms.values()], default=None)
        due = self._others.seconds() if self._others else None
        own = None if nearest is None else max(0.0, nearest - time.monotonic())
        return min((each for each in (own, due) if each is not None), default=None)

    def _hear_program(self) -> None:
        for end in self._ends.receive() if self._ends else ():
            if self._stop_deadline is not None:
                # It ends since it was asked to, or since its peers have: no failure of its own, and no longer wait.
                if end.is_failure and self._exit_seconds is not None:
                    self._stop_deadline = min(self._stop_deadline, time.monotonic() + self._exit_seconds)
                elif not end.is_failure and end.pid == self._child.pid:
                    self._finished = end
                continue
            if end.is_failure:
                self._failure = end
                is_own = end.pid == self._child.pid and not self._was_told and not end.is_immediate
                if self._others is not None and is_own:
                    self._others.fail(end.code, end.at, end.error)
            if self._exit_seconds is None:
                continue  # there is no waiter
            if end.is_failure:
                self._alarms[self._name_failure] = time.monotonic() + _NAME_SECONDS
                self._alarms[self._end_failed] = time.monotonic() + self._exit_seconds
            elif end.pid == self._child.pid:
                self._finished = end
                self._alarms[self._name_finished] = time.monotonic() + FINISHED_SECONDS

    def _look_whether_frozen(self) -> None:
        if not is_stopped(self._child.pid):
            self._frozen = None
            self._alarms.pop(self._end_frozen, None)
        elif self._frozen is None:
            self._frozen = ProgramEnd(self._child.pid, KILLED, time.time(), "frozen: a signal (SIGSTOP) has stopped it")
            logger.warning(
                "the program is frozen: a signal (SIGSTOP) has stopped it; `kill -CONT %d` lets it go on",
                self._child.pid,
            )
            if self._exit_seconds is not None:
                self._alarms[self._end_frozen] = time.monotonic() + FROZEN_SECONDS

    def _pass_on(self, received: Sequence[int]) -> None:
        for number in received:
            if number in FORWARDED:
                send(self._child.pid, number, group=True)
            if number in STOP and self._stop_signal is None:
                if self._finished is not None:
                    seconds = time.time() - self._finished.at
                    logger.warning("the program came to its end %.1f s before it was told to stop", seconds)
                self._stop_signal = number
                self._asked_at, self._stopped_at = time.monotonic(), time.time()
                self._stop_deadline = self._asked_at + self._patience
                if self._others is not None:
                    self._others.was_asked(signal.Signals(number).name)

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        for act in [act for act, moment in self._alarms.items() if now >= moment]:
            del self._alarms[act]
            act()
        if self._stop_deadline is not None and now >= self._stop_deadline:
            if not self._is_killed:
                name = signal.Signals(self._stop_signal or 0).name
                seconds = now - self._asked_at
                self._diagnostics.append(f"still running {seconds:.0f} s after {name}: killed")
            self._kill()

    def _name_failure(self) -> None:
        assert self._failure is not None
        logger.error(
            "the program failed, and is in its exit handlers: %s; it is killed %.0f s after it failed",
            self._failure.error,
            self._exit_seconds,
        )

    def _name_finished(self) -> None:
        assert self._finished is not None
        logger.warning(
            "the program came to its end %.0f s ago, with exit code %d, and is in its exit handlers: in JAX it waits "
            "there for the processes that go on",
            FINISHED_SECONDS,
            self._finished.code,
        )

    def _end_frozen(self) -> None:
        self._diagnostics.append(f"frozen for {FROZEN_SECONDS:.0f} s: killed")
        self._kill()

    def _end_silent(self, since: float, seconds: float) -> None:
        """Has the program write its stacks, and kills it a moment later."""
        error = f"it has printed nothing for {seconds:.0f} s (silenceSeconds)"
        logger.error(
            "the program has printed nothing for %.0f s (silenceSeconds), and is killed; if it is one of Python, the "
            "stacks of its threads follow",
            seconds,
        )
        # The moment from which it was silent: of several processes the first is to blame, and the others waited for it.
        at = time.time() - (time.monotonic() - since)
        self._failure = ProgramEnd(self._child.pid, ExitCode.STALLED, at, error)
        send(self._child.pid, signal.SIGURG, group=True)
        self._alarms[self._kill] = time.monotonic() + _STACKS_SECONDS

    def _end_failed(self) -> None:
        """Ends the process that failed: the program with all that it started, or a command of a shell script alone."""
        failure = self._failure
        assert failure is not None
        self._diagnostics.append(f"still running {self._exit_seconds:.0f} s after it failed: killed")
        if failure.pid == self._child.pid:
            self._kill()
        elif failure.pid in descendants(os.getpid()):
            send(failure.pid, signal.SIGKILL)

    def _kill(self) -> None:
        self._is_killed = True
        send(self._child.pid, signal.SIGKILL, group=True)
        for pid in descendants(os.getpid()):
            send(pid, signal.SIGKILL)


def _end_leftovers(signals: SignalQueue, seconds: float, others: Optional[Others]) -> Tuple[str, ...]:
    """Ends every process below this one: asked at once, killed after `seconds`. The others hear of us meanwhile."""
    asked: Set[int] = set()
    killed: Dict[int, str] = {}
    deadline = time.monotonic() + seconds
    while True:
        reap()
        alive = descendants(os.getpid())
        if not alive or time.monotonic() > deadline + _KILLED_SECONDS:
            break
        for pid in alive:
            if time.monotonic() >= deadline:
                killed.setdefault(pid, command_line(pid))
                send(pid, signal.SIGKILL)
            elif pid not in asked:
                asked.add(pid)
                send(pid, signal.SIGTERM)
        if others is not None:
            others.step()
        # Only our own children announce their end by a signal, so look again soon.
        signals.wait(0.02)
    for pid in alive:
        logger.error("process %d (%s) cannot be killed", pid, command_line(pid))
    return tuple(f"left behind and killed: process {pid} ({command})" for pid, command in killed.items())
