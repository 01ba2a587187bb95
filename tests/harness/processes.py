"""Several trainer processes on this machine, wired as the operator wires pods: through the contract's environment.

Each is one JAX process of so many CPU devices, with its own log and termination message. They end with the test: by
pid, and by the kernel when the test run itself is killed.
"""

import contextlib
import json
import os
import re
import signal
import sys
import time
import urllib.error
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.quick_compiling import XLA_FLAGS
from tools.localcluster.plain_http import opened
from tools.localcluster.processes import Process, free_ports
from tools.localcluster.waiting import wait_for

REPOSITORY = Path(__file__).parents[2]
COMPILE_CACHE = REPOSITORY / ".cache" / "jax-tests"
AT_START = Path(__file__).parent / "at_start"
COMPILED_ONCE = {
    "XLA_FLAGS": XLA_FLAGS,
    "JAX_COMPILATION_CACHE_DIR": str(COMPILE_CACHE),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "PYTHONPATH": str(AT_START),
}
"""Variables of programs that compile once for all, where that is kept, and fast, and of trainers that take their steps
at a pace: what they show is not the speed."""
TRAINER = ("-m", "tpujob_trainer")
LAUNCH = ("-m", "tpujob_contract.launch", "--")
PATIENCE_SECONDS = 300.0
"""For what happens within seconds on an idle machine; less than a test's own limit."""
LOG_LINES_IN_ERRORS, LOG_LINES_WITH_STACKS = 30, 600
MAIN_THREAD = "in _run_module_as_main"
"""The outermost function in a stack; the main thread is the last to be written."""

_STEP_LINE = re.compile(r"Step (\d+) of \d+: loss ([0-9.einfa+-]+)")


class Member(Process):
    """One process of a run."""

    def __init__(
        self, index: int, program: Sequence[str], folder: Path, report_port: int, environment: Mapping[str, str]
    ) -> None:
        """Starts a program of Python; its log and termination message lie in the folder."""
        self.index, self.report_port = index, report_port
        self.termination_file = folder / f"{index}.termination"
        self.ended_at: float | None = None
        super().__init__(
            f"process {index}",
            [sys.executable, *program],
            folder / f"{index}.log",
            environment={
                **environment,
                "TPUJOB_REPORT_PORT": str(report_port),
                "TPUJOB_TERMINATION_LOG": str(self.termination_file),
            },
            working_directory=REPOSITORY,
        )

    @property
    def termination_message(self) -> str:
        return self.termination_file.read_text() if self.termination_file.exists() else ""

    @property
    def losses(self) -> dict[int, float]:
        """Loss of each step in the log; process 0 has them, with four decimals."""
        return {int(step): float(loss) for step, loss in _STEP_LINE.findall(self.log)}

    def report(self) -> dict[str, Any] | None:
        """GET /report, or None while nobody answers."""
        try:
            with opened(f"http://127.0.0.1:{self.report_port}/report", timeout_seconds=5) as answer:
                values: dict[str, Any] = json.load(answer)
                return values
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def poll(self) -> int | None:
        """Exit code as Kubernetes counts it (128 + signal), or None while it runs."""
        if self.exit_code is not None:
            self.ended_at = self.ended_at or time.monotonic()
        return self.exit_code


class Run:
    """The processes of one attempt, from start to end."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members

    def __getitem__(self, index: int) -> Member:
        return self.members[index]

    def wait(self, *, limit_seconds: float = PATIENCE_SECONDS) -> list[int]:
        """The exit codes of all, once all have ended."""
        wait_for("all processes to end", self._all_ended, timeout_seconds=limit_seconds, explain=self.explain_lateness)
        return [code for member in self.members if (code := member.poll()) is not None]

    def wait_for_report(
        self,
        what: str,
        condition: Callable[[dict[str, Any]], bool],
        *,
        index: int = 0,
        limit_seconds: float = PATIENCE_SECONDS,
    ) -> dict[str, Any]:
        """The first report of a process that fulfils the condition; fails at once when a process ends before."""

        def fulfilled() -> dict[str, Any] | None:
            report = self.members[index].report()
            if report is not None and condition(report):
                return report
            if self.members[index].poll() is not None:
                raise AssertionError(f"process {index} ended before {what}; {self.explain()}")
            return None

        return wait_for(what, fulfilled, timeout_seconds=limit_seconds, explain=self.explain_lateness)

    def stop(self) -> None:
        """Ends what is left, by force."""
        for member in self.members:
            member.send(signal.SIGKILL)
            member.stop()

    def explain(self, log_lines: int = LOG_LINES_IN_ERRORS) -> str:
        """The end of every log."""
        lines = []
        for member in self.members:
            lines.append(f"--- process {member.index}: exit code {member.poll()}, {member.log_file}")
            lines += member.log.splitlines()[-log_lines:]
        return "\n".join(lines)

    def explain_lateness(self) -> str:
        """What those say that are not done in time: their last report, and the stacks of all their threads."""
        reports = {member.index: member.report() for member in self.members}
        late = [member for member in self.members if member.poll() is None]
        written = [member.log_file.stat().st_size for member in late]
        for member in late:
            member.send(signal.SIGUSR2)
        with contextlib.suppress(TimeoutError):
            wait_for(
                "the stacks",
                lambda: all(MAIN_THREAD in m.log_since(size) for m, size in zip(late, written, strict=True)),
                timeout_seconds=10,
            )
        return f"{reports}\n{self.explain(LOG_LINES_WITH_STACKS)}"

    def _all_ended(self) -> bool:
        return None not in [member.poll() for member in self.members]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    folder: Path,
    *,
    processes: int,
    devices: int,
    slices: int = 1,
    config: Mapping[str, Any],
    checkpoint_dir: Path | str | None = None,
    name: str = "job",
    attempt: int = 0,
    startup_seconds: int = int(PATIENCE_SECONDS),
    grace_seconds: int = 120,
    program: Sequence[str] = TRAINER,
    launchers: Sequence[Sequence[str]] = (),
    absent: Sequence[int] = (),
    extra: Mapping[str, str] | None = None,
    extra_of: Callable[[int], Mapping[str, str]] = lambda index: {},
) -> Run:
    """Starts the processes of one attempt.

    Args:
        folder: For logs and termination messages; made if need be, new for each attempt.
        processes: How many, in all slices.
        devices: CPU devices of each.
        slices: How many of equal size they are the hosts of.
        config: The `trainer` block.
        checkpoint_dir: Default: `checkpoints` beside `folder`.
        name: Of the job, in namespace "test".
        attempt: As JobSet counts it.
        startup_seconds: How long they wait for each other.
        grace_seconds: From SIGTERM to the end.
        program: Arguments of Python; several are started by launchers, without which they do not meet.
        launchers: Arguments of Python that start the launcher of each process, where it is not this release's.
        absent: Processes that never come.
        extra: More environment.
        extra_of: More environment of one process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    coordinator, launcher, *report_ports = free_ports(processes + 2)
    of_job = {
        **common_environment(folder, devices, config, str(checkpoint_dir or folder.parent / "checkpoints")),
        # Not for several: `compile_cache.is_exact`. The trainer sees to it, other programs here do not.
        "JAX_COMPILATION_CACHE_DIR": str(COMPILE_CACHE) if processes * devices == 1 else "",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TPUJOB_NAME": name,
        "TPUJOB_ATTEMPT": str(attempt),
        "TPUJOB_COORDINATOR": f"127.0.0.1:{coordinator}",
        "TPUJOB_LAUNCHER_PORT": str(launcher),
        "TPUJOB_STARTUP_SECONDS": str(startup_seconds),
        "TPUJOB_GRACE_SECONDS": str(grace_seconds),
        **(extra or {}),
    }

    def member(index: int) -> Member:
        is_launched = processes > 1 and program[: len(LAUNCH)] != LAUNCH
        command = (*(launchers[index] if launchers else LAUNCH), sys.executable, *program) if is_launched else program
        own = {**of_job, **_place(index, processes, slices), **extra_of(index)}
        return Member(index, command, folder, report_ports[index], own)

    return Run([member(index) for index in range(processes) if index not in absent])


def _place(index: int, processes: int, slices: int) -> dict[str, str]:
    hosts = processes // slices
    place = {"SLICES": slices, "HOSTS_PER_SLICE": hosts, "SLICE": index // hosts, "HOST": index % hosts}
    return {f"TPUJOB_{name}": str(number) for name, number in place.items()}


def common_environment(folder: Path, devices: int, config: Mapping[str, Any], checkpoint_dir: str) -> dict[str, str]:
    """What members of a job and independent workers have in common, on the CPU of this machine."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "PYTHONPATH": str(AT_START),
        "XLA_FLAGS": XLA_FLAGS,
        "TPUJOB_NAMESPACE": "test",
        "TPUJOB_INCARNATION": "1",
        "TPUJOB_ATTEMPT": "0",
        "TPUJOB_CHIPS_PER_HOST": str(devices),
        "TPUJOB_CHECKPOINT_DIR": checkpoint_dir,
        "TPUJOB_CONFIG": json.dumps(config),
    }


def kill(member: Member, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to one process."""
    member.send(number)
