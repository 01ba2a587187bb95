"""One program, run as process 1 should run it: signals reach it, orphans are reaped, nothing of it remains.

- It has a session and process group of its own. Signals go to the group, once each.
- Told to stop, it has the grace period less a margin; then it and all that it started are killed.
- When it has ended by itself, what it left behind is asked to end, and killed a few seconds later.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Callable, Dict, Mapping, Optional, Sequence, Set, Tuple

from tpujob_contract.grace import margin_seconds
from tpujob_launcher.child.output import Output
from tpujob_launcher.child.processes import adopt_orphans, command_line, descendants, die_with, reap, send
from tpujob_launcher.child.signals import FORWARDED, STOP, SignalQueue

logger = logging.getLogger(__name__)

LEFTOVER_SECONDS = 5.0
"""How long a process may outlive the program that started it. Short: a restart of the whole job waits for it."""

_KILLED_SECONDS = 1.0
"""How long a killed process may take to disappear. Longer means that it hangs in a driver, where nobody can help."""

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
    """By which signal it was told to stop, if it was."""


def run(
    command: Sequence[str],
    environ: Mapping[str, str],
    signals: SignalQueue,
    *,
    grace_seconds: float,
    keep_output: bool,
    on_start: Optional[Callable[[], None]] = None,
) -> ExitResult:
    """Runs a command until neither it nor anything that it started is alive.

    Args:
        command: Program and arguments.
        environ: Its environment.
        signals: Receives this process's signals.
        grace_seconds: Time from being told to stop to being killed, as Kubernetes counts it.
        keep_output: Pass the output through pipes, so that its last lines are known. Otherwise the program writes
            to our stdout and stderr themselves, and sees a terminal where there is one.
        on_start: Called once the program runs; may start threads.

    Raises:
        OSError: The command could not be started.
    """
    adopt_orphans()
    output = Output() if keep_output else None
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
        on_start()
    result = _supervise(child, signals, grace_seconds)
    if output and not output.finish(margin_seconds(grace_seconds) / 2 if result.stop_signal else _DRAIN_SECONDS):
        logger.warning("nobody reads the output: its end is lost")
    return ExitResult(result.code, result.diagnostics, output.tail.last_lines() if output else b"", result.stop_signal)


def _supervise(child: subprocess.Popen[bytes], signals: SignalQueue, grace_seconds: float) -> ExitResult:
    patience = grace_seconds - margin_seconds(grace_seconds)
    diagnostics = []
    stop_signal: Optional[int] = None
    deadline: Optional[float] = None
    is_killed = False
    while child.returncode is None:
        seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
        received = signals.wait(0.1 if is_killed else seconds)
        # Reaped first: a signal that comes after the end was not heard by the program, and must not change its meaning.
        child.returncode = reap().get(child.pid)
        if child.returncode is not None:
            break
        for number in received:
            if number in FORWARDED:
                send(child.pid, number, group=True)
            if number in STOP and stop_signal is None:
                stop_signal = number
                deadline = time.monotonic() + patience
        if deadline is not None and time.monotonic() >= deadline:
            if not is_killed:
                diagnostics.append(
                    f"still running {patience:.0f} s after {signal.Signals(stop_signal or 0).name}: killed"
                )
            is_killed = True
            send(child.pid, signal.SIGKILL, group=True)
            for pid in descendants(os.getpid()):
                send(pid, signal.SIGKILL)
    left = LEFTOVER_SECONDS if deadline is None else deadline - time.monotonic()
    diagnostics += _end_leftovers(signals, min(LEFTOVER_SECONDS, patience, left))
    return ExitResult(child.returncode, tuple(diagnostics), stop_signal=stop_signal)


def _end_leftovers(signals: SignalQueue, seconds: float) -> Tuple[str, ...]:
    """Ends every process below this one: asked at once, killed after `seconds`."""
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
        # Only our own children announce their end by a signal, so look again soon.
        signals.wait(0.02)
    for pid in alive:
        logger.error("process %d (%s) cannot be killed", pid, command_line(pid))
    return tuple(f"left behind and killed: process {pid} ({command})" for pid, command in killed.items())
