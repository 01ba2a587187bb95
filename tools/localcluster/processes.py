"""Processes with their own log file and session, ended by their pid, which never outlive the process that started them.

The kernel kills a process when the *thread* that started it ends (see dies_with_parent): start long-lived ones from
the main thread.
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

# Below the range of ephemeral ports (32768 and up), or an outgoing connection could take a port between its choice here
# and its use.
FIRST_PORT, LAST_PORT = 20000, 32000


class ProcessError(Exception):
    """A process ended, or did not become ready; the message has its last log lines."""


class Process:
    """A running process that writes to a log file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log_file: Path,
        *,
        environment: Mapping[str, str] | None = None,
        working_directory: Path | None = None,
        output_file: Path | None = None,
    ) -> None:
        """Starts the command.

        Args:
            name: Name for messages.
            command: The absolute path of the program, and its arguments.
            log_file: Receives standard output and error; replaced if it exists.
            environment: All its variables; default: only HOME and PATH.
            working_directory: Default: the caller's.
            output_file: Receives standard output instead of the log file.
        """
        self.name = name
        self.log_file = log_file
        self._output_file = output_file or log_file
        self._working_directory = working_directory
        self._launch = [*dies_with_parent.launcher(signal.SIGKILL), *map(str, command)]
        # Not the caller's environment: the user's KUBECONFIG, proxy or GODEBUG must not affect tests.
        self._environment = environment or {"HOME": str(log_file.parent), "PATH": os.environ.get("PATH", os.defpath)}
        for file in (self.log_file, self._output_file):
            file.write_bytes(b"")
        self._popen = self._started()

    def start_again(self) -> None:
        """Stops the command if it still runs, and starts it again; its output is appended to the log."""
        self.stop()
        self._popen = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log_file.open("ab") as log, self._output_file.open("ab") as output:
            return subprocess.Popen(
                self._launch,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env=self._environment,
                cwd=self._working_directory,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its session and process group."""
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._popen.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code as Kubernetes reports it (128 + signal); None: it still runs."""
        code = self._popen.poll()
        return 128 - code if code is not None and code < 0 else code

    @property
    def log(self) -> str:
        """The content of the log file."""
        return self.log_file.read_text(errors="replace")

    def log_since(self, size: int) -> str:
        """The content of the log file after the first `size` bytes."""
        return self.log_file.read_bytes()[size:].decode(errors="replace")

    def send(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""
        self._popen.send_signal(number)

    def wait(self, seconds: float = 300) -> int:
        """Waits until the process has ended; returns its exit code.

        Raises:
            subprocess.TimeoutExpired: It has not ended within the time.
        """
        self._popen.wait(seconds)
        assert self.exit_code is not None
        return self.exit_code

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
        """The end of the log, preceded by the path of the log file."""
        lines = self.log.splitlines()[-LOG_LINES_IN_ERRORS:]
        return "\n".join([f"the log {self.log_file} ends with:", *lines])

    def stop(self, *, grace_seconds: float = 10) -> None:
        """Ends the process, by SIGKILL after the grace period; returns when its whole process group is gone."""
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


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


class _Ports:
    """Cycles through ports in random order: a port is returned again only after all others."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.count = len(ports)
        self._next = itertools.cycle(random.SystemRandom().sample(ports, len(ports)))
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            return next(self._next)


_ports = _Ports(range(FIRST_PORT, LAST_PORT))


def choose_ports_of_part(part: int, parts: int) -> None:
    """Limits `free_ports` to one of `parts` parts of the range, for processes that choose ports at the same time."""
    global _ports
    _ports = _Ports(range(FIRST_PORT + part, LAST_PORT, parts))


def free_ports(count: int) -> list[int]:
    """Distinct free ports on loopback, which were not returned recently."""
    found: list[int] = []
    for _ in range(_ports.count):
        if len(found) == count:
            return found
        port = _ports.next()
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    raise OSError(f"no {count} free ports between {FIRST_PORT} and {LAST_PORT}")
