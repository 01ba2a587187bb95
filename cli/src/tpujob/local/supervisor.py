"""Starts the processes of a job, watches them, and makes sure that every one of them ends.

The rules are those of the JobSet that they come from: all finish, or the first failure ends all; an independent worker
that fails starts again alone. The first Ctrl-C asks
all to save and stop; a second one kills them. Processes are started in sessions of their own, so that Ctrl-C reaches
them only through this process and in order, and they die with this process if it is killed.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType

from tpujob.local import dies_with_parent
from tpujob.local.plan import LocalProcess
from tpujob_contract.exit_codes import FATAL
from tpujob_launcher.supervise.processes import descendants, is_stopped, send

PEER_FAILED_GRACE_SECONDS = 10
"""Time for the others after a process failed: they cannot finish another step, only exit."""
FINISHED_PEERS_LIMIT_SECONDS = 60
"""How long the others may run after the first has finished, if all finish within the same step."""
EARLY_FINISH_SECONDS = 60
"""How long the others may run after a process has finished before a notice is printed."""
KILL_MARGIN_SECONDS = 3
"""The launcher itself ends its child within the grace period; it is killed this long after that."""
SLOW_STOP_SECONDS = 10.0
"""How long a requested stop may take before a notice is printed."""
TICK_SECONDS = 0.5
BY_SIGNAL = 128
"""Exit codes above it mean death by a signal, as in a shell."""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How one process ended."""

    process: LocalProcess
    code: int
    """As in the contract and in a shell: 128 + n for a process killed by signal n."""
    asked_to_stop: bool
    """Whether a stop was requested before it ended."""
    killed: bool
    """Whether it was killed from here: it did not exit in time, or there was a second Ctrl-C."""
    ended_at: float = 0.0
    """Unix time."""


class Supervisor:
    """Runs processes to their end. `run` is called once, from the main thread."""

    def __init__(
        self,
        processes: Sequence[LocalProcess],
        *,
        grace_seconds: int,
        on_tick: Callable[[], None],
        finish_together: bool = False,
        restarts: int | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            processes: One for each host of the job.
            grace_seconds: From a request to stop until a process is killed.
            on_tick: Called about twice a second.
            finish_together: Whether all finish within the same step, so that one that continues is hanging. A JobSet
                waits for the others; only our trainer's known behavior allows a shorter wait.
            restarts: How often each starts again after a failure, if none waits for another; None: they wait.
        """
        self._processes = processes
        self._finish_together = finish_together
        self._restarts = restarts
        self._starts: Counter[int] = Counter()
        self._grace_seconds = grace_seconds
        self._on_tick = on_tick
        self._running: dict[int, tuple[LocalProcess, subprocess.Popen[bytes]]] = {}
        self._exits: list[Exit] = []
        self._asked: set[int] = set()
        self._killed: set[int] = set()
        self._interrupts = 0
        self._deadline: float | None = None
        self.on_started: Callable[[], None] = lambda: None
        self.on_interrupt: Callable[[int], None] = lambda count: None
        self.on_failure: Callable[[Exit], None] = lambda end: None
        """Called once, when the first failure ends the others."""
        self.on_worker_failure: Callable[[Exit, int], None] = lambda end, left: None
        """Called for each failure of an independent worker, with how often it may still start again; -1: not again."""
        self.on_early_finish: Callable[[Exit, Exit | None], None] = lambda end, failed: None
        """Called once, if the first process to end has finished: when others still run `EARLY_FINISH_SECONDS` later, or
        when one of them fails, with that failure."""
        self._is_early_finish_named = False
        self.on_slow_stop: Callable[[list[LocalProcess], float], None] = lambda processes, seconds: None
        """Called once if a requested stop takes longer than `SLOW_STOP_SECONDS`: running processes, and time left."""
        self._slow_stop_at: float | None = None
        self.on_frozen: Callable[[LocalProcess, int], None] = lambda process, pid: None
        """Called once for a process whose launcher is stopped (SIGSTOP): it neither works nor ends."""
        self._frozen: set[int] = set()

    def run(self) -> list[Exit]:
        """Runs all to their end; returns their exits, in the order of ending. No process is left when it returns."""
        with selectors.DefaultSelector() as selector, _Wakeup(self._interrupt) as wakeup:
            selector.register(wakeup.socket, selectors.EVENT_READ)
            try:
                for process in self._processes:
                    self._start(process, selector)
                self.on_started()
                while self._running:
                    for key, _ in selector.select(TICK_SECONDS):
                        if key.fileobj is wakeup.socket:
                            wakeup.drain()
                        else:
                            selector.unregister(key.fileobj)
                            os.close(key.fd)
                            self._ended(key.data, selector)
                    self._enforce_deadline()
                    self._look_at_slow_stop()
                    self._look_for_frozen()
                    self._look_for_early_finish()
                    self._on_tick()
            finally:
                self._kill_all()
                for process, child in self._running.values():
                    child.wait()
                    self._killed.add(process.index)
        return self._exits

    def _start(self, process: LocalProcess, selector: selectors.BaseSelector) -> None:
        child = _start(process, is_first=not self._starts[process.index])
        self._starts[process.index] += 1
        selector.register(os.pidfd_open(child.pid), selectors.EVENT_READ, data=process.index)
        self._running[process.index] = (process, child)

    def _ended(self, index: int, selector: selectors.BaseSelector) -> None:
        process, child = self._running.pop(index)
        code = child.wait()
        code = 128 - code if code < 0 else code
        end = Exit(
            process=process,
            code=code,
            asked_to_stop=index in self._asked,
            killed=index in self._killed,
            ended_at=time.time(),
        )
        if self._restarts is not None and not self._asked and code not in (0, *FATAL):
            left = self._restarts - self._starts[index]
            self.on_worker_failure(end, left)
            if left >= 0:
                self._start(process, selector)
            else:
                self._exits.append(end)
            return
        self._exits.append(end)
        if self._deadline is not None and code == 0:
            return
        if code == 0:
            if self._finish_together:
                self._deadline = time.monotonic() + FINISHED_PEERS_LIMIT_SECONDS
        elif self._asked and code > BY_SIGNAL and self._restarts is None:
            # It did not save, so no other can: they would wait for it in a barrier, for up to the grace period.
            self._shorten_deadline(PEER_FAILED_GRACE_SECONDS)
        elif not self._asked:
            self._name_early_finish(failed=self._exits[-1])
            self._ask_all_to_stop(min(self._grace_seconds, PEER_FAILED_GRACE_SECONDS))
            if self._running:
                self.on_failure(self._exits[-1])

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            self._ask_all_to_stop(self._grace_seconds)
            self._slow_stop_at = time.monotonic() + SLOW_STOP_SECONDS
        else:
            self._kill_all()
        self.on_interrupt(self._interrupts)

    def _ask_all_to_stop(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds + KILL_MARGIN_SECONDS
        for index, (_, child) in self._running.items():
            self._asked.add(index)
            child.send_signal(signal.SIGTERM)

    def _shorten_deadline(self, seconds: float) -> None:
        moment = time.monotonic() + seconds
        self._deadline = moment if self._deadline is None else min(self._deadline, moment)

    def _look_at_slow_stop(self) -> None:
        now = time.monotonic()
        if self._slow_stop_at is not None and now >= self._slow_stop_at and self._running and self._deadline:
            self._slow_stop_at = None
            self.on_slow_stop([process for process, _ in self._running.values()], self._deadline - now)

    def _enforce_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._kill_all()

    def _look_for_frozen(self) -> None:
        frozen = {index for index, (_, child) in self._running.items() if is_stopped(child.pid)}
        for index in frozen - self._frozen:
            process, child = self._running[index]
            self.on_frozen(process, child.pid)
        self._frozen = frozen

    def _look_for_early_finish(self) -> None:
        if not self._exits or not self._running or self._asked:
            return
        if time.time() - self._exits[0].ended_at >= EARLY_FINISH_SECONDS:
            self._name_early_finish()

    def _name_early_finish(self, failed: Exit | None = None) -> None:
        if self._exits[0].code == 0 and not self._is_early_finish_named:
            self._is_early_finish_named = True
            self.on_early_finish(self._exits[0], failed)

    def _kill_all(self) -> None:
        """Kills the launchers and all their descendants; the kernel alone would end their programs, but not daemons."""
        for index, (_, child) in self._running.items():
            if child.poll() is None:
                self._killed.add(index)
                below = descendants(child.pid)
                child.kill()
                for pid in below:
                    send(pid, signal.SIGKILL)


def _start(process: LocalProcess, *, is_first: bool) -> subprocess.Popen[bytes]:
    process.log.parent.mkdir(parents=True, exist_ok=True)
    process.termination_log.unlink(missing_ok=True)
    with process.log.open("wb" if is_first else "ab") as log:
        return subprocess.Popen(
            [*dies_with_parent.launcher(signal.SIGTERM), *process.argv],
            env=process.environ,
            cwd=process.working_directory,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


class _Wakeup:
    """Turns SIGINT, SIGTERM and SIGHUP into something a selector can wait for."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self._on_signal = on_signal

    def __enter__(self) -> _Wakeup:
        self.socket, self._write = socket.socketpair()
        self.socket.setblocking(False)
        self._write.setblocking(False)
        # Under nohup, SIGHUP is ignored, and must stay ignored.
        wanted = [s for s in self.SIGNALS if s != signal.SIGHUP or signal.getsignal(s) is not signal.SIG_IGN]
        self._previous = {s: signal.signal(s, self._handle) for s in wanted}
        self._previous_fd = signal.set_wakeup_fd(self._write.fileno())
        return self

    def __exit__(self, *exc_info: object) -> None:
        signal.set_wakeup_fd(self._previous_fd)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self.socket.close()
        self._write.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # The byte in the socket wakes the selector; Python writes it only for a signal with a handler.
        return

    def drain(self) -> None:
        for _ in self.socket.recv(64):
            self._on_signal()
