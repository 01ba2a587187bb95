"""Random faults at random moments, in jobs of real processes under `tpujob run`: what must hold after each.

    python -m benchmarks.random_faults --minutes 60 [--seed 1] [--write]

A round is one job: a kind of program, two to four processes, restarts in place or not. It counts its steps and saves
every few of them; faults come from outside, one after another; Ctrl-C ends it. After each fault:

- the run goes on after the newest checkpoint, which is none that is older than at the fault;
- one attempt follows, in place or anew, and no second one; the account that the launchers keep says the same;
- at the end no process is left.
"""

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import random_rounds
from benchmarks.random_rounds import MOST_RESTARTS, Broken, Struck
from tests.harness import local_run
from tests.multiprocess.conftest import DOCUMENTS, SEQUENCE_LENGTH
from tests.multiprocess.pacing import REQUESTS
from tests.multiprocess.program_faults import (
    PROGRAMS,
    base_environment,
    is_installed,
    one_maxtext,
    processes_of,
    spec_of,
)
from tpujob_contract.reports import in_place
from tpujob_launcher.supervise.processes import send

OF_PROGRAM = ("kill -9", "SIGSTOP", "exception", "sys.exit", "os._exit")
OF_LAUNCHER = "kill -9 of a launcher"
OF_ALL = "Ctrl-C"
SIGNALS = {"kill -9": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
GRACE_SECONDS = 15
COUNTS = {program: (2,) if program == "MaxText" else (2, 3, 4) for program in PROGRAMS if is_installed(program)}
"""Numbers of processes, by installed program."""
STEP = {
    "trainer": re.compile(r"Step (\d+) of \d+: loss"),
    "plain JAX": re.compile(r"^step (\d+)$", re.MULTILINE),
    "PyTorch": re.compile(r"^step (\d+)$", re.MULTILINE),
    "MaxText": re.compile(r"completed step: (\d+),"),
}
"""The log line of process 0 about a step; the first after checkpoint N is N + 1."""
MARKS = "<!-- table: make random-faults -->", "<!-- end of random faults -->"


class Round(random_rounds.Round):
    """One job under `tpujob run`, from its start until Ctrl-C."""

    faults = (*OF_PROGRAM, *OF_PROGRAM, OF_LAUNCHER, OF_ALL)
    _run: subprocess.Popen[str]
    _reader: threading.Thread

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Starts the job for a block; its folder stays where an expectation did not hold."""
        self._lines: list[str] = []
        (self.folder / "requests").mkdir()
        spec = {
            "accelerator": f"cpu:{self.count}x1",
            **_spec(self.program, self.folder),
            "gracePeriodSeconds": GRACE_SECONDS,
            "inPlaceRestarts": MOST_RESTARTS if self.in_place else 0,
        }
        local_run.write_job(self.folder / "job.yaml", "random", spec)
        self._environment = {
            **base_environment(self.folder),
            "FAULT_PROCESS": "-1",
            REQUESTS: str(self.folder / "requests"),
        }
        with one_maxtext(self.program):
            self._start()
            try:
                yield
            finally:
                self._end()
        shutil.rmtree(self.folder)

    def explain(self) -> str:
        """The end of the output, and the ends of the logs of the last containers."""
        logs = [f"--- {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-40:]) for log in self._logs()]
        return "\n".join(["".join(self._lines)[-6000:], *logs])

    def _start(self) -> None:
        self._run = subprocess.Popen(
            [sys.executable, "-m", "tpujob", "run", "job.yaml", "--restarts", "1000", "-o", "json"],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        assert self._run.stderr is not None
        self._reader = threading.Thread(target=self._lines.extend, args=(self._run.stderr,))
        self._reader.start()

    def strike(self, fault: str) -> Struck:
        """Injects a fault, and checks that the job continues as expected."""
        self._wait("a program to run", lambda: len(self._programs()) == self.count)
        threading.Event().wait(self.chance.uniform(0, self.moment_seconds))
        if fault == OF_ALL or fault in ("exception", "sys.exit", "os._exit"):
            self._wait("a step", lambda: self._first_step() is not None)
        victim = self.chance.randrange(self.count)
        again, anew = self._starts()
        struck_at, saved, last = time.monotonic(), self._committed(), self._last_step()
        logs = self._logs()
        if fault == OF_ALL:
            self.end()
            self._start()
            again, anew = 0, 0
        else:
            self._hit(fault, victim)
            self._wait("the next attempt", lambda: sum(self._starts()) > again + anew)
        self._wait("other logs", lambda: self._logs() != logs or self._starts()[0] > again)
        self._wait("the next step", lambda: self._first_step() is not None)
        first = self._first_step()
        assert first is not None
        is_in_place = self._starts()[0] > again
        self._check(fault, first, saved, (again, anew))
        return Struck(fault, is_in_place, time.monotonic() - struck_at, max(0, last - first + 1))

    def _hit(self, fault: str, victim: int) -> None:
        if fault == OF_LAUNCHER:
            send(local_run.launchers(self._run.pid)[victim], signal.SIGKILL)
        elif fault in SIGNALS:
            send(self._programs()[victim], SIGNALS[fault])
        else:
            request = self.folder / "requests" / "unfinished"
            request.write_text(fault)
            request.rename(request.with_name(str(victim)))

    def _check(self, fault: str, first: int, saved: int, before: tuple[int, int]) -> None:
        again, anew = self._starts()
        expected = 0 if fault == OF_ALL else 1
        if again + anew - sum(before) != expected:
            raise Broken(f"{fault}: {again - before[0]} restarts in place and {anew - before[1]} anew followed")
        self.check_resumed(fault, first, saved, self._steps())

    def end(self) -> None:
        """Sends Ctrl-C, and checks the end of the job."""
        self._run.send_signal(signal.SIGINT)
        self._wait("the end", lambda: self._run.poll() is not None, is_end=True)
        self._join()
        if self._run.returncode != 75:
            raise Broken(f"Ctrl-C: exit code {self._run.returncode}, not 75")
        self._check_nothing_left("Ctrl-C")
        self._check_account()

    def _check_account(self) -> None:
        """Checks that launcher 0 counted as many restarts in the last containers as were announced."""
        text = "".join(self._lines)
        announced = text.rpartition(": restart ")[2].count(" in the same containers: ")
        self._lines.clear()
        message = next(self._logs()[0].parent.glob("process-0.ending")).read_text()
        account = in_place.split(message)[1] or {"counts": {}}
        if sum(account["counts"].values()) != announced:
            raise Broken(f"{announced} restarts in place, and the account is {account}")

    def _check_nothing_left(self, when: str) -> None:
        left = processes_of(self.folder)
        if left:
            raise Broken(f"{when}: processes {left} are left")

    def _end(self) -> None:
        self._run.kill()
        self._run.wait()
        for pid in processes_of(self.folder):
            send(pid, signal.SIGKILL)
        self._join()

    def _join(self) -> None:
        """Reads the output to its end."""
        self._reader.join()
        assert self._run.stderr is not None
        self._run.stderr.close()

    def _wait(self, what: str, condition: Callable[[], bool], *, is_end: bool = False) -> None:
        def fulfilled() -> bool:
            if not is_end and self._run.poll() is not None:
                raise Broken(f"ended with {self._run.returncode}, waiting for {what}")
            return condition()

        self.wait(what, fulfilled)

    def _starts(self) -> tuple[int, int]:
        """The number of restarts in place, and of restarts in new containers, that the run has announced."""
        text = "".join(self._lines)
        return text.count(" in the same containers: "), len(re.findall(r": restart \d+ of \d+ in ", text))

    def _programs(self) -> dict[int, int]:
        """The pid of each program, by process."""
        return local_run.programs(self._run.pid)

    def _logs(self) -> list[Path]:
        """The logs of the last containers, process 0's first."""
        folders = sorted(self.folder.glob(".tpujob/default/random/logs/*"))
        return sorted(folders[-1].glob("process-*.log")) if folders else []

    def _first_step(self) -> int | None:
        return next(self._logged_steps(), None)

    def _last_step(self) -> int:
        return max(self._logged_steps(), default=0)

    def _logged_steps(self) -> Iterator[int]:
        """The steps in process 0's log of the last attempt."""
        for log in self._logs()[:1]:
            text = log.read_text(errors="replace").rpartition(" in the same containers: ")[2]
            yield from map(int, STEP[self.program].findall(text))

    def _steps(self) -> set[int]:
        """The committed steps."""
        folder = self.folder / ".tpujob" / "default" / "random" / "checkpoints"
        return {int(each.name) for each in folder.glob("**/*") if each.name.isdecimal() and each.is_dir()}

    def _committed(self) -> int:
        """The newest committed step; -1: there is none."""
        return max(self._steps(), default=-1)


def _spec(program: str, folder: Path) -> dict[str, Any]:
    """The fields of a job's spec for a program that runs forever."""
    if program == "trainer":
        pq.write_table(pa.table({"text": DOCUMENTS}), folder / "text.parquet", row_group_size=4)
        trainer = {
            "model": {"layers": 2, "embedDim": 32, "heads": 2},
            "data": {"path": f"{folder}/*.parquet"},
            "steps": 1_000_000,
            "sequenceLength": SEQUENCE_LENGTH,
            "batchSize": 12,
            "checkpoint": {"everySteps": 4, "keep": 50},
            "logEverySteps": 1,
            "heartbeatSeconds": 15,
        }
        return {"trainer": trainer}
    return spec_of(program, steps=1_000_000, period=20)


if __name__ == "__main__":
    sys.exit(random_rounds.main(__doc__, Round, COUNTS, MARKS, jobs=1, apart=OF_ALL))
