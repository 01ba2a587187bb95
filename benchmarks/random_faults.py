"""Random faults at random moments, in jobs of real processes under `tpujob run`: what must hold after each.

    python -m benchmarks.random_faults --minutes 60 [--seed 1] [--write]

A round is one job: a kind of program, two to four processes, restarts in place or not. It counts its steps and saves
every few of them; faults come from outside, one after another; Ctrl-C ends it. After each fault:

- the run goes on after the newest checkpoint, which is none that is older than at the fault;
- one attempt follows, in place or anew, and no second one; the account that the launchers keep says the same;
- at the end no process is left.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from ruamel.yaml import YAML

from tests.multiprocess import program_faults
from tests.multiprocess.conftest import DOCUMENTS, SEQUENCE_LENGTH
from tests.multiprocess.pacing import REQUESTS
from tests.multiprocess.program_faults import (
    PAGE,
    PROGRAMS,
    PYTORCH,
    base_environment,
    is_installed,
    one_maxtext,
    processes_of,
)
from tests.workloads import maxtext_job
from tools.localcluster.waiting import wait_for
from tpujob_contract.reports import in_place
from tpujob_launcher.child.processes import send

OF_PROGRAM = ("kill -9", "SIGSTOP", "exception", "sys.exit", "os._exit")
OF_LAUNCHER = "kill -9 of a launcher"
OF_ALL = "Ctrl-C"
FAULTS = (*OF_PROGRAM, *OF_PROGRAM, OF_LAUNCHER, OF_ALL)
SIGNALS = {"kill -9": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
FAULTS_OF_ROUND = 4
"""The pause before a restart grows with their number."""
MOMENT_SECONDS = 12.0
"""The longest time from the start of an attempt to the next fault: some come before its first step."""
PATIENCE_SECONDS = 400.0
GRACE_SECONDS = 15
STEP = {
    "trainer": re.compile(r"Step (\d+) of \d+: loss"),
    "plain JAX": re.compile(r"^step (\d+)$", re.MULTILINE),
    "PyTorch": re.compile(r"^step (\d+)$", re.MULTILINE),
    "MaxText": re.compile(r"completed step: (\d+),"),
}
"""The log line of process 0 about a step; the first after checkpoint N is N + 1."""
BEGIN, END = "<!-- table: make random-faults -->", "<!-- end of random faults -->"


@dataclasses.dataclass(frozen=True)
class Struck:
    """One fault, and its effect."""

    program: str
    fault: str
    is_in_place: bool
    """Whether all programs restarted in the same containers."""
    seconds: float
    """From the fault to the next finished step."""
    repeated_steps: int


class Broken(Exception):  # noqa: N818 - a finding, not a fault of this program
    """An expectation does not hold."""


class Round:
    """One job, from its start until Ctrl-C."""

    def __init__(
        self, program: str, processes: int, in_place_restarts: int, chance: random.Random, folder: Path
    ) -> None:
        """Writes the job, with its `in_place_restarts`; starts nothing yet."""
        self.program, self.chance, self.folder = program, chance, folder
        self.name = f"{program} in {processes} processes, {'in place' if in_place_restarts else 'anew'}"
        self.struck: list[Struck] = []
        self._processes = processes
        self._lines: list[str] = []
        folder.mkdir(parents=True)
        (folder / "requests").mkdir()
        spec = {
            "accelerator": f"cpu:{processes}x1",
            **_spec(program, folder),
            "gracePeriodSeconds": GRACE_SECONDS,
            "inPlaceRestarts": in_place_restarts,
        }
        job = {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob", "metadata": {"name": "random"}}
        YAML().dump({**job, "spec": spec}, folder / "job.yaml")
        self._environment = {
            **base_environment(folder),
            "FAULT_PROCESS": "-1",
            REQUESTS: str(folder / "requests"),
        }

    def play(self, until: float) -> list[Struck]:
        """Injects faults until there were `FAULTS_OF_ROUND`, or until a `time.monotonic` time, and ends the job.

        Raises:
            Broken: An expectation does not hold.
        """
        self._start()
        try:
            while len(self.struck) < FAULTS_OF_ROUND and time.monotonic() < until:
                self.struck.append(self._strike(self.chance.choice(FAULTS)))
            self._interrupt()
        finally:
            self._end()
        return self.struck

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

    def _strike(self, fault: str) -> Struck:
        """Injects a fault, and checks that the job continues as expected."""
        self._wait("a program to run", lambda: len(self._programs()) == self._processes)
        threading.Event().wait(self.chance.uniform(0, MOMENT_SECONDS))
        if fault == OF_ALL or fault in ("exception", "sys.exit", "os._exit"):
            self._wait("a step", lambda: self._first_step() is not None)
        victim = self.chance.randrange(self._processes)
        again, anew = self._starts()
        struck_at, saved, last = time.monotonic(), self._committed(), self._last_step()
        logs = self._logs()
        if fault == OF_ALL:
            self._interrupt()
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
        return Struck(self.program, fault, is_in_place, time.monotonic() - struck_at, max(0, last - first + 1))

    def _hit(self, fault: str, victim: int) -> None:
        if fault == OF_LAUNCHER:
            send(self._launchers()[victim], signal.SIGKILL)
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
        resumed = first - 1
        if resumed < saved or (resumed > 0 and resumed not in self._steps()):
            raise Broken(f"{fault}: went on with step {first}; {saved} was saved, and now {sorted(self._steps())}")

    def _interrupt(self) -> None:
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

        try:
            wait_for(what, fulfilled, timeout_seconds=PATIENCE_SECONDS)
        except TimeoutError as error:
            raise Broken(str(error)) from error

    def _starts(self) -> tuple[int, int]:
        """The number of restarts in place, and of restarts in new containers, that the run has announced."""
        text = "".join(self._lines)
        return text.count(" in the same containers: "), len(re.findall(r": restart \d+ of \d+ in ", text))

    def _launchers(self) -> dict[int, int]:
        """The pid of each launcher, by process."""
        found = {}
        for pid in _children(self._run.pid):
            host = _host(pid)
            if host is not None:
                found[host] = pid
        return found

    def _programs(self) -> dict[int, int]:
        """The pid of each program, by process."""
        return {index: below[0] for index, pid in self._launchers().items() if (below := _children(pid))}

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
    if program == "plain JAX":
        return {"command": ["python3", "-m", "tests.multiprocess.plain_jax"]}
    if program == "PyTorch":
        return {"framework": "pytorch", "command": [str(PYTORCH), "-m", "tests.multiprocess.plain_torch"]}
    return maxtext_job.spec(steps=1_000_000, period=20)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def _host(pid: int) -> int | None:
    """The host index in the environment of a process; None: there is none."""
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = variable.partition(b"=")
            if name == b"TPUJOB_HOST":
                return int(value)
    return None


def rounds(seed: int, until: float, programs: Sequence[str], folder: Path) -> Iterator[tuple[Round, Broken | None]]:
    """Runs rounds until a `time.monotonic` time; yields each with the expectation that does not hold, if any."""
    chance = random.Random(seed)  # noqa: S311
    for number in itertools.count():
        program = programs[number % len(programs)]
        in_place_restarts = chance.choice((0, 1000))
        count = 2 if program == "MaxText" else chance.randint(2, 4)
        if time.monotonic() >= until:
            return
        played = Round(program, count, in_place_restarts, chance, folder / str(number))
        broken = None
        with one_maxtext(program):
            try:
                played.play(until)
            except Broken as error:
                broken = error
        yield played, broken
        if broken is None:
            shutil.rmtree(played.folder)


def table(played: Mapping[str, Sequence[Struck]]) -> str:
    """The Markdown table of results, with a row for each program."""
    heads = ("Program", "faults", "in place", "anew", "Ctrl-C", "to the next step", "steps done again")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for program, struck in played.items():
        if not struck:
            continue
        stops = sum(each.fault == OF_ALL for each in struck)
        in_place_count = sum(each.is_in_place for each in struck)
        counts = (len(struck), in_place_count, len(struck) - stops - in_place_count, stops)
        costs = in_words([each.seconds for each in struck], [each.repeated_steps for each in struck])
        lines.append(f"| {' | '.join(map(str, (program, *counts, *costs)))} |")
    return "\n".join(lines)


def in_words(seconds: Sequence[float], repeated_steps: Sequence[int]) -> tuple[str, str]:
    """The cost of faults as text: the median and the maximum of the seconds, and the maximum of the steps."""
    median = sorted(seconds)[len(seconds) // 2]
    return f"{median:.0f} s, at most {max(seconds):.0f} s", f"at most {max(repeated_steps)}"


def main() -> int:
    """Runs rounds and prints the results; returns 1 if an expectation did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help=f"write the result into {PAGE.name}")
    parser.add_argument("programs", nargs="*", help=f"of {', '.join(PROGRAMS)}; default: all that are installed")
    options = parser.parse_args()
    programs = options.programs or [each for each in PROGRAMS if is_installed(each)]
    folder = Path(tempfile.mkdtemp(prefix="random-faults-"))
    found: dict[str, list[Struck]] = {program: [] for program in programs}
    problems = 0
    begun = time.monotonic()
    for played, broken in rounds(options.seed, begun + options.minutes * 60, programs, folder):
        found[played.program] += played.struck
        faults = ", ".join(f"{each.fault} {each.seconds:.0f} s" for each in played.struck)
        sys.stdout.write(f"{played.name}: {faults}\n")
        if broken is not None:
            problems += 1
            sys.stdout.write(f"BROKEN: {broken}\n{played.explain()}\nkept: {played.folder}\n")
        sys.stdout.flush()
    words = f"Seed {options.seed}, {(time.monotonic() - begun) / 60:.0f} minutes: {problems} of what must hold did not."
    result = f"{words}\n\n{table(found)}"
    sys.stdout.write(result + "\n")
    if options.write:
        program_faults.write_between(BEGIN, END, result)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
