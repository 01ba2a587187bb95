"""The launcher as a real process, for tests: its command, its environment, what it and its child said."""

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.localcluster.processes import Process, is_alive
from tools.localcluster.waiting import wait_for
from tpujob_contract import environment
from tpujob_launcher.supervise.processes import send

MARK = "LAUNCHED_BY_TEST"
KILLED = 128 + signal.SIGKILL

PYTHON = (sys.executable, "-I", "-S", "-c")
"""Starts a child program quickly."""

JOB = {
    "TPUJOB_NAME": "llama",
    "TPUJOB_NAMESPACE": "team-a",
    "TPUJOB_INCARNATION": "1",
    "TPUJOB_ATTEMPT": "0",
    "TPUJOB_SLICE": "1",
    "TPUJOB_HOST": "3",
    "TPUJOB_HOSTS_PER_SLICE": "4",
    "TPUJOB_SLICES": "2",
    "TPUJOB_CHIPS_PER_HOST": "4",
    "TPUJOB_COORDINATOR": "llama-w-0-0.llama:8476",
    "TPUJOB_STARTUP_SECONDS": "600",
    "TPUJOB_GRACE_SECONDS": "30",
}
"""Host 3 of slice 1, in a job of 2 slices of 4 hosts."""

WORKER = {k: v for k, v in JOB.items() if k in environment.COMMON} | {"TPUJOB_WORKER": "5", "TPUJOB_WORKERS": "32"}

LEAVES_A_GRANDCHILD = """
import os, signal, sys
how, then = sys.argv[1:]
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    if "setsid" in how:
        os.setsid()
    if "orphan" in how and os.fork():
        os._exit(0)
    if "deaf" in how:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("grandchild", os.getpid(), flush=True)
    os.write(writer, b".")
    while True:
        signal.pause()
os.read(reader, 1)
if then == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("ready", flush=True)
    signal.pause()
"""
"""A program whose grandchild (how: any of setsid, orphan, deaf) says its pid; it then ends, or waits for a SIGTERM."""

LAUNCHER = (sys.executable, "-m", "tpujob_contract.launch")


class Launched(Process):
    """A running launcher, whose output goes to files."""

    def __init__(
        self, folder: Path, command: Sequence[str], environ: Mapping[str, str] = {}, launcher: Sequence[str] = LAUNCHER
    ) -> None:
        self.stdout_file = folder / "stdout"
        self.stderr_file = folder / "stderr"
        self.message_file = folder / "termination-log"
        # The mark tells whose all that is started below is, orphans included.
        self._mark = f"{MARK}={folder}".encode()
        base = {"PATH": os.environ["PATH"], "TPUJOB_TERMINATION_LOG": str(self.message_file), MARK: str(folder)}
        super().__init__(
            "the launcher",
            [*launcher, "--", *command],
            self.stderr_file,
            output_file=self.stdout_file,
            environment={**base, **environ},
        )

    @property
    def stdout(self) -> str:
        return self.stdout_file.read_text()

    @property
    def stderr(self) -> str:
        return self.stderr_file.read_text()

    @property
    def message(self) -> list[str]:
        """The lines of the termination message."""
        return self.message_file.read_text().splitlines()

    @property
    def grandchild(self) -> int:
        """The pid that LEAVES_A_GRANDCHILD has said."""
        return int(self.stdout.split("grandchild ")[1].split()[0])

    def wait_until_said(self, text: str) -> None:
        def said_or_ended() -> bool:
            has_ended = self.has_ended  # before the look: what it wrote last counts
            said = text in self.stdout + self.stderr
            assert said or not has_ended, f"ended with {self.exit_code}: {self.stdout}{self.stderr}"
            return said

        wait_for(f"{text!r} in the output", said_or_ended, explain=lambda: self.stdout + self.stderr)

    def send_to_group(self, number: int) -> None:
        """As a terminal does."""
        os.killpg(self.pid, number)

    def close(self) -> None:
        """Ends it and everything below it.

        Raises:
            AssertionError: the launcher has ended by itself, and left a process.
        """
        has_ended = self.exit_code not in (None, KILLED)
        self.send(signal.SIGKILL)
        self.wait()
        left = self._processes()
        for pid in left:
            send(pid, signal.SIGKILL)
        wait_for("the processes to be gone", lambda: not self._processes())
        assert not (has_ended and left), f"the launcher ended and left the processes {left}"

    def _processes(self) -> list[int]:
        """Living processes that inherited the mark."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark in (entry / "environ").read_bytes().split(b"\0") and is_alive(int(entry.name)):
                    found.append(int(entry.name))
        return found


def connections(port: int) -> int:
    """Connections to a port of this machine that the server has accepted: those that wait for that have no inode."""
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" and row[9] != "0" for row in rows)
