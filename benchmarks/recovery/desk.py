"""A job of two processes under `tpujob run`; without restarts in place, the command runs again when it has ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.recovery import faults, programs
from benchmarks.recovery.timing import Recovery, first_start, recovery
from tests.harness.local_run import programs as local_programs
from tests.harness.local_run import write_job
from tests.harness.processes import COMPILED_ONCE
from tests.workloads import maxtext_job
from tools.localcluster.waiting import wait_for

LIMIT_SECONDS = 300.0
STEPS_BEFORE = 30
GRACE_SECONDS = 15
"""For a program that does not handle the signal that ends the measurement."""


class Log:
    """The log lines of one process in all attempts, with the time at which they were read."""

    def __init__(self, folder: Path, process: int) -> None:
        self._folder = folder
        self._name = f"process-{process}.log"
        self._read: dict[Path, int] = {}
        self.lines: list[tuple[float, str]] = []

    def look(self) -> None:
        """Reads the new lines."""
        for file in sorted(self._folder.glob(f".tpujob/default/desk/logs/*/{self._name}")):
            with file.open() as stream:
                stream.seek(self._read.get(file, 0))
                text = stream.read()
                whole, _, _ = text.rpartition("\n")
                self._read[file] = self._read.get(file, 0) + len(whole.encode()) + bool(whole)
            self.lines += [(time.time(), line) for line in whole.splitlines()]


def measure(program: str, fault: str, *, in_place: bool, folder: Path) -> tuple[Recovery, Recovery]:
    """Runs the job and injects a fault; returns the seconds of the first start, and of the one after the fault."""
    _write(program, folder, in_place=in_place)
    log, victim, step = Log(folder, 0), Log(folder, 1), programs.STEP_LINES[program]

    def found(signalled: float | None = None) -> Recovery | None:
        log.look()
        if signalled is None:
            return first_start(log.lines, step)
        victim.look()
        return recovery(log.lines, step, faults.happened((line for _, line in victim.lines), signalled))

    def steps() -> bool:
        log.look()
        return sum(bool(step.search(line)) for _, line in log.lines) >= STEPS_BEFORE

    with _run(folder) as run:
        first = wait_for("a step", found, timeout_seconds=LIMIT_SECONDS, poll_seconds=0.01)
        began = log.lines[0][0]
        wait_for("steps", steps, timeout_seconds=LIMIT_SECONDS, poll_seconds=0.01)
        at = time.time()
        os.kill(local_programs(run.pid)[1], faults.SIGNALS[fault])
        if not in_place:
            wait_for("its end", lambda: run.poll() is not None, timeout_seconds=LIMIT_SECONDS, poll_seconds=0.01)
            with _run(folder):
                again = wait_for("a step", lambda: found(at), timeout_seconds=LIMIT_SECONDS, poll_seconds=0.01)
        else:
            again = wait_for("a step", lambda: found(at), timeout_seconds=LIMIT_SECONDS, poll_seconds=0.01)
    assert began <= at
    return first, again


@contextmanager
def _run(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, **COMPILED_ONCE, "SAVED": str(folder), "PYTHONPATH": str(folder / "faults")}
    command = [sys.executable, "-m", "tpujob", "run", "job.yaml"]
    with (
        (folder / "run.log").open("ab") as output,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output) as run,
    ):
        try:
            yield run
        finally:
            if run.poll() is None:
                run.send_signal(signal.SIGINT)
                run.wait(120)


def _write(program: str, folder: Path, *, in_place: bool) -> None:
    spec: dict[str, Any] = {
        "accelerator": "cpu:2x1",
        "inPlaceRestarts": 3 if in_place else 0,
        "gracePeriodSeconds": GRACE_SECONDS,
    }
    if program == "trainer":
        (folder / "text.txt").write_text("tick tock tick\n" * 2000)
        spec["trainer"] = programs.trainer("text.txt")
    elif program == "MaxText":
        spec |= maxtext_job.spec(**programs.MAXTEXT)
    else:
        (folder / "program.py").write_text(programs.PLAIN_JAX)
        spec |= {"image": "jax:any", "command": [sys.executable, "program.py"]}
    (folder / "faults").mkdir()
    (folder / "faults" / "sitecustomize.py").write_text(faults.SITECUSTOMIZE)
    write_job(folder / "job.yaml", "desk", spec)
