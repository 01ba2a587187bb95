"""Processes with a log file and a session of their own, ended by their pid, never outliving the one that started them.

The kernel ends a process when the *thread* that started it ends (see dies_with_parent): start long-lived ones from the
main thread.
"""

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.localcluster.waiting import PATIENCE_SECONDS, wait_for
from tpujob.local import dies_with_parent

LOG_LINES_IN_ERRORS = 15

# Below the range from which kernels take the ports of outgoing connections (32768 and up), or one of those could take a
# port between its choice here and its use.
FIRST_PORT, LAST_PORT = 20000, 32000


class ProcessError(Exception):
    """A process ended, or did not become what was awaited; the message holds its last log lines."""


class Process:
    """A running process that writes to a log file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log_file: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the command.

        Args:
            name: Name for messages.
            command: The absolute path of the program, and its arguments.
            log_file: Receives standard output and error; replaced if it exists.
            environment: All its variables; by default next to none.
        """
        self.name = name
        self.log_file = log_file
        self._launch = [*dies_with_parent.launcher(signal.SIGKILL), *map(str, command)]
        # Not the caller's environment: a KUBECONFIG, proxy or GODEBUG of the user's must not change what tests see.
        self._environment = environment or {"HOME": str(log_file.parent), "PATH": os.environ.get("PATH", os.defpath)}
        log_file.write_bytes(b"")
        self._popen = self._started()

    def start_again(self) -> None:
        """Starts the command once more after it has ended; its log goes on."""
        self.stop()
        self._popen = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                self._launch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its session and process group."""
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._popen.poll() is not None

    def wait_until_ready(
        self, what: str, is_ready: Callable[[], bool], *, timeout_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Waits for a condition that only this process can bring about.

        Raises:
            ProcessError: The process ended, or the time ran out.
        """

        def ready_or_gone() -> bool:
            exit_code = self._popen.poll()
            if exit_code is not None:
                ending = f"exited with code {exit_code} while {what} was awaited"
                raise ProcessError(f"{self.name} {ending}; {self.last_log_lines()}")
            return is_ready()

        try:
            wait_for(what, ready_or_gone, timeout_seconds=timeout_seconds, explain=self.last_log_lines)
        except TimeoutError as error:
            raise ProcessError(f"{self.name}: {error}") from error

    def last_log_lines(self) -> str:
        """The end of the log and where the rest is."""
        lines = self.log_file.read_text(errors="replace").splitlines()[-LOG_LINES_IN_ERRORS:]
        return "\n".join([f"the log {self.log_file} ends with:", *lines])

    def stop(self, *, grace_seconds: float = 10) -> None:
        """Ends the process, by force after the grace period, and returns when its whole process group is gone."""
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                self._popen.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()
        if self._group_exists():
            os.killpg(self.pid, signal.SIGKILL)
            wait_for(f"the process group of {self.name} to end", lambda: not self._group_exists(), timeout_seconds=10)

    def _group_exists(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


class _Ports:
    """A range of ports in random order, over and over: what was handed out comes again after all others."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.count = len(ports)
        self._next = itertools.cycle(random.SystemRandom().sample(ports, len(ports)))
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            return next(self._next)


_ports = _Ports(range(FIRST_PORT, LAST_PORT))


def choose_ports_of_part(part: int, parts: int) -> None:
    """Has `free_ports` choose from one of so many parts of the range, for programs that choose at the same time."""
    global _ports
    _ports = _Ports(range(FIRST_PORT + part, LAST_PORT, parts))


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nothing listens on, all different, and none that was chosen here lately."""
    found: list[int] = []
    for _ in range(_ports.count):
        if len(found) == count:
            return found
        port = _ports.next()
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    raise OSError(f"no {count} free ports between {FIRST_PORT} and {LAST_PORT}")
