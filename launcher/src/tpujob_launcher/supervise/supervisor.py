"""Runs one program as process 1 should: signals reach it, orphans are reaped, none of its processes remains.

- It has its own session and process group. Each signal goes to the group once.
- `ending` decides when it is asked to end, or killed with all its descendants.
- When it has ended, leftover processes are asked to end, and killed a few seconds later.
"""

import dataclasses
import logging
import os
import signal
import subprocess
import time
from typing import Callable, Mapping, Optional, Sequence

from tpujob_launcher.peers.peers import Peers
from tpujob_launcher.peers.timing import FINISHED_SECONDS
from tpujob_launcher.supervise.ending import Act, Ending
from tpujob_launcher.supervise.outcome import ExitResult
from tpujob_launcher.supervise.output import Output
from tpujob_launcher.supervise.processes import (
    adopt_orphans,
    descendants,
    die_with,
    end_leftovers,
    is_stopped,
    reap,
    send,
)
from tpujob_launcher.supervise.program_end import ProgramEnds
from tpujob_launcher.supervise.signals import FORWARDED, STOP, SignalQueue

logger = logging.getLogger(__name__)


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    signals: SignalQueue,
    *,
    grace_seconds: float,
    keep_output: bool,
    on_start: Callable[[int], None],
    on_end: Callable[[ExitResult], None],
    on_late_stop: Callable[[int], None],
    ends: Optional[ProgramEnds],
    exit_seconds: Optional[float],
    peers: Optional[Peers],
    silence_seconds: Optional[float],
) -> ExitResult:
    """Runs a command until neither it nor anything that it started is alive.

    Args:
        command: Program and arguments.
        environ: Of the program.
        signals: Of this process.
        grace_seconds: Time from the stop signal to SIGKILL, as Kubernetes counts it.
        keep_output: Pass the output through pipes, so that its last lines are known. Otherwise the program writes
            to our stdout and stderr themselves, and sees a terminal where there is one.
        on_start: Called with the number of the process once the program runs; may start threads.
        on_end: Called once the program has ended; leftover processes may still run.
        on_late_stop: Called with a stop signal that came after that, and does not change how the program ended.
        ends: Receives the ends that the program reports.
        exit_seconds: How long the program may take to end once it has failed; None: without limit.
        peers: The launchers of the other hosts, which may end it.
        silence_seconds: How long the program may print nothing before it is ended; None: without limit.

    Raises:
        OSError: The command could not be started.
    """
    adopt_orphans()
    output = Output() if keep_output or silence_seconds is not None else None
    child = _start(command, environ, output)
    on_start(child.pid)
    ending = Ending(child.pid, grace_seconds=grace_seconds, exit_seconds=exit_seconds, silence_seconds=silence_seconds)
    result = _Supervision(child, signals, ending, ends, peers, output).run()
    on_end(result)
    serve: Callable[[], None] = peers.step if peers else lambda: None
    left, stops = end_leftovers(signals, ending.leftover_seconds(time.monotonic()), serve)
    for number in stops[:1]:
        on_late_stop(number)
    seconds = ending.drain_seconds(in_place=peers is not None and peers.in_place > 0)
    if output and not output.finish(seconds, serve):
        logger.warning("nobody reads the output: its end is lost")
    return dataclasses.replace(
        result, diagnostics=(*result.diagnostics, *left), output=output.tail.last_lines() if output else b""
    )


def _start(command: Sequence[str], environ: Mapping[str, str], output: Optional[Output]) -> subprocess.Popen[bytes]:
    parent = os.getpid()
    try:
        # preexec_fn is safe here: no thread runs yet.
        return subprocess.Popen(
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


@dataclasses.dataclass(frozen=True)
class _Supervision:
    """One program from its start to its end: its events go to `ending`, which decides what to do."""

    child: subprocess.Popen[bytes]
    signals: SignalQueue
    ending: Ending
    ends: Optional[ProgramEnds]
    peers: Optional[Peers]
    output: Optional[Output]

    def run(self) -> ExitResult:
        """Returns how it ended; processes that it started may still run."""
        child = self.child
        while child.returncode is None:
            received = self.signals.wait(self._seconds(), *[each for each in (self.ends, self.peers) if each])
            # Reaped first: a signal after the end did not reach the program, and must not change what its end means.
            child.returncode = reap().get(child.pid)
            self._hear_program()
            if child.returncode is not None:
                break
            if signal.SIGCHLD in received:
                self._look_whether_frozen()
            self._pass_on(received)
            self._hear_peers()
            for act in self.ending.look(time.monotonic(), time.time(), self._printed_at):
                self._do(act)
        ended_at = time.time()
        if self.peers is not None:
            self.peers.step()  # the last messages of the program to its launcher
        if self.peers is None:
            return self.ending.result(child.returncode, ended_at, None)
        state = self.peers.state
        result = self.ending.result(child.returncode, ended_at, state.following)
        return dataclasses.replace(result, other_asked=state.asked)

    @property
    def _printed_at(self) -> float:
        return self.output.tail.heard_at if self.output else 0.0

    def _seconds(self) -> Optional[float]:
        own = self.ending.seconds(time.monotonic(), self._printed_at)
        due = self.peers.seconds() if self.peers else None
        return min((each for each in (own, due) if each is not None), default=None)

    def _hear_program(self) -> None:
        for end in self.ends.receive() if self.ends else ():
            if self.ending.reported(end, time.monotonic()) and self.peers is not None:
                self.peers.fail(end.code, end.at, end.error)

    def _hear_peers(self) -> None:
        peers, ending = self.peers, self.ending
        if peers is None:
            return
        peers.step()
        # A program that was asked to stop itself saves, and has the grace period for that.
        if peers.state.has_to_end and not ending.ended_by_peer and ending.stop_signal is None:
            if peers.state.following is not None:
                logger.warning("the program has to end: %s", peers.state.following[1])
            ending.peer_failed(
                peers.state.following,
                is_connected=peers.program.is_connected,
                is_silent=peers.is_silent,
                in_place=peers.in_place > 0,
                now=time.monotonic(),
            )

    def _look_whether_frozen(self) -> None:
        if not is_stopped(self.child.pid):
            self.ending.thawed()
        elif self.ending.froze(time.monotonic(), time.time()):
            logger.warning(
                "the program is frozen: a signal (SIGSTOP) has stopped it; `kill -CONT %d` lets it go on",
                self.child.pid,
            )

    def _pass_on(self, received: Sequence[int]) -> None:
        for number in received:
            if number in FORWARDED:
                send(self.child.pid, number, group=True)
            if number in STOP and self.ending.asked_to_stop(number, time.monotonic(), time.time()):
                if self.ending.finished is not None:
                    seconds = time.time() - self.ending.finished.at
                    logger.warning("the program came to its end %.1f s before it was told to stop", seconds)
                if self.peers is not None:
                    self.peers.was_asked(signal.Signals(number).name)

    def _do(self, act: Act) -> None:
        ending, pid = self.ending, self.child.pid
        if act is Act.NAME_FAILURE and ending.failure is not None:
            logger.error(
                "the program failed, and is in its exit handlers: %s; it is killed %.0f s after it failed",
                ending.failure.error,
                ending.exit_seconds,
            )
        elif act is Act.NAME_FINISHED and ending.finished is not None:
            logger.warning(
                "the program came to its end %.0f s ago, with exit code %d, and is in its exit handlers: in JAX it "
                "waits there for the processes that go on",
                FINISHED_SECONDS,
                ending.finished.code,
            )
        elif act is Act.ASK:
            send(pid, signal.SIGTERM, group=True)
        elif act is Act.NAME_SILENCE:
            logger.error(
                "the program has printed nothing for %.0f s (silenceSeconds), and is killed; if it is one of Python, "
                "the stacks of its threads follow",
                ending.silence_seconds,
            )
        elif act is Act.SHOW_STACKS:
            send(pid, signal.SIGURG, group=True)  # its default is to be ignored
        elif act is Act.KILL_FAILED and ending.failure is not None:
            if ending.failure.pid in descendants(os.getpid()):
                send(ending.failure.pid, signal.SIGKILL)
        elif act is Act.KILL:
            send(pid, signal.SIGKILL, group=True)
            for each in descendants(os.getpid()):
                send(each, signal.SIGKILL)
