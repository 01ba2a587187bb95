"""One cell of the table of `tpujob run`: one fault in one of two processes, of four kinds of program.

What counts is what a person sees: how soon the process is named, when all have ended or started again, the exit code,
who is to blame.
"""

import contextlib
import dataclasses
import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness.local_run import write_job
from tests.harness.processes import COMPILED_ONCE, REPOSITORY
from tests.workloads import maxtext_job
from tools.localcluster.processes import is_alive
from tools.localcluster.waiting import wait_for
from tpujob_contract import ExitCode
from tpujob_launcher.supervise.processes import send

PYTORCH = REPOSITORY / ".cache" / "reference" / "bin" / "python"
PROGRAMS = ("trainer", "plain JAX", "PyTorch", "MaxText")
INSTALLED = {"PyTorch": PYTORCH, "MaxText": maxtext_job.PYTHON}
"""Programs that have an environment of their own, and its Python."""
FAULTS = {
    "exception": 1,
    "sys.exit": 3,
    "exit 75": 75,
    "os._exit": 3,
    "kill -9": 137,
    "SIGSTOP": 137,
    "eviction": 143,
    "SIGTERM, exit 0": 75,
    "exit 0": 75,
}
"""Each with the exit code of `tpujob run`: that of the process that has it; for `exit 0` that of Ctrl-C after it."""
CODES = {
    # Its processes end at the heartbeat, before the launcher ends the frozen one.
    ("trainer", "SIGSTOP"): 1,
    # All stop at one step, save, and end.
    ("trainer", "eviction"): 75,
    ("MaxText", "eviction"): 75,
    # JAX catches the signal and tells whoever asks; the program does not, and is killed after the grace period.
    ("plain JAX", "eviction"): 137,
    ("trainer", "exit 0"): 1,
    # Its peer does not wait, but fails.
    ("PyTorch", "exit 0"): 1,
}
"""The same for programs that end otherwise."""
GRACE_SECONDS = 15
NAMED_SECONDS = 10.0
"""From the fault until the process is named on the screen."""
ENDED_SECONDS = 30.0
"""From the fault until `tpujob run` has ended and no process is left."""
SLOW_SECONDS = {"SIGSTOP": 90.0, "exit 0": 90.0, "exit 75": 90.0}
"""The same where a person may let the process go on, or finish the others: a launcher waits for a minute."""
RUN_SECONDS = 300.0
"""From the start of `tpujob run` to its end, on a busy machine."""
HEARTBEAT_SECONDS = 15
PAGE = REPOSITORY / "docs" / "reference" / "faults.md"
TABLE_BEGIN, TABLE_END = "<!-- table: make faults -->", "<!-- end of programs -->"
BYTECODE = REPOSITORY / ".cache" / "bytecode"
_MARK = "PROGRAM_FAULT_FOLDER"
_ARMED = """
import os, sys
if sys.orig_argv[1:3] == ["-m", "tpujob_trainer"]:
    from tests.multiprocess.faulty_trainer import prepare
    prepare()
if sys.orig_argv[1:3] == ["-m", "maxtext.trainers.pre_train.train"]:
    from tests.multiprocess.faulty_maxtext import prepare
    prepare()
"""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One place of the table."""

    program: str
    fault: str
    victim: int
    in_place: bool = False
    """Whether the job has `inPlaceRestarts`."""

    @property
    def key(self) -> str:
        """As a test's id and a folder's name."""
        how = "-in-place" if self.in_place else ""
        return f"{self.program}-{self.fault}-{self.victim}{how}".replace(" ", "")

    @property
    def code(self) -> int:
        """With which the run is to end, unless all start again."""
        return CODES.get((self.program, self.fault), FAULTS[self.fault])

    @property
    def starts_again(self) -> bool:
        """Whether all start again in their containers: not where they were asked to stop, or where one has finished."""
        is_stopped = "SIGTERM" in self.fault or self.fault == "eviction"
        has_finished = self.fault == "exit 0" and self.program == "PyTorch"
        return self.in_place and not (is_stopped or has_finished or self.goes_on)

    @property
    def may_start_again(self) -> bool:
        """Whether that depends on who is heard first: a process that fails, or its peer, whose end made it fail."""
        return self.in_place and self.fault == "exit 0" and self.program == "PyTorch"

    @property
    def is_to_be_named(self) -> bool:
        """Whether the screen names the process: at an eviction that the program survives it need not."""
        if self.fault in ("exit 0", "exit 75"):
            # All of the trainer's stop with 75, and peers of PyTorch's fail before the process has ended.
            return self.goes_on or (self.program, self.fault) == ("trainer", "exit 0")
        return "SIGTERM" not in self.fault and self.fault != "eviction"

    @property
    def culprit(self) -> str:
        """Whom the last line is to name: nobody where all stop, and who fails where its peer has finished."""
        if self.code == ExitCode.STOPPED:
            return ""
        return f"process {1 - self.victim if self.fault == 'exit 0' and self.program == 'PyTorch' else self.victim}"

    @property
    def goes_on(self) -> bool:
        """Whether the others wait for the process, and it for them in JAX's exit handlers, until Ctrl-C."""
        return self.fault in ("exit 0", "exit 75") and self.program in ("plain JAX", "MaxText")

    @property
    def exists(self) -> bool:
        """Whether there is such a program: trainer and MaxText handle SIGTERM themselves."""
        return self.fault != "SIGTERM, exit 0" or self.program in ("plain JAX", "PyTorch")


_ALL = (Cell(*cell) for cell in itertools.product(PROGRAMS, FAULTS, (0, 1), (False, True)))
TABLE = tuple(cell for cell in _ALL if cell.exists)


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a person saw of a cell."""

    cell: Cell
    named_seconds: float | None
    """From the fault to the first line that names the process; None: no line did before the end."""
    again_seconds: float | None
    """From the fault until all start again in place; None: they did not."""
    seconds: float
    """From the fault to the end of `tpujob run`."""
    code: int | None
    summary: Mapping[str, Any]
    explanation: str
    """What it printed."""
    is_interrupted: bool
    """Whether it went on after the fault, until Ctrl-C."""
    left: Sequence[int]
    """Processes of it that were alive afterwards."""

    @property
    def culprit(self) -> str:
        """As the last line names it."""
        named = str(self.summary.get("message", "")).partition(" (")[0]
        return named if named.startswith("process ") else ""

    def problems(self) -> list[str]:
        """What is not as it should be, in words."""
        cell, found = self.cell, []
        slow = SLOW_SECONDS.get(cell.fault, ENDED_SECONDS)
        named_limit = slow if cell.goes_on else NAMED_SECONDS
        starts_again = cell.starts_again or (cell.may_start_again and self.again_seconds is not None)
        if cell.is_to_be_named and (self.named_seconds is None or self.named_seconds > named_limit):
            found.append(f"named after {self.named_seconds} s")
        if starts_again:
            if self.again_seconds is None or self.again_seconds > slow:
                found.append(f"all started again after {self.again_seconds} s")
            if self.code != 0:
                found.append(f"exit code {self.code}, not 0")
        else:
            found += self._problems_of_end(slow)
        if self.left:
            found.append(f"left processes {self.left}")
        return found

    def _problems_of_end(self, limit: float) -> list[str]:
        cell, found = self.cell, []
        if self.code != cell.code:
            found.append(f"exit code {self.code}, not {cell.code}")
        if self.culprit != cell.culprit:
            found.append(f"the culprit is {self.culprit!r}, not {cell.culprit!r}")
        if self.seconds > limit:
            found.append(f"ended after {self.seconds:.0f} s")
        if cell.fault == "exception" and "RuntimeError: a fault on purpose" not in str(self.summary.get("cause")):
            found.append(f"the cause is {self.summary.get('cause')!r}")
        return found


@contextlib.contextmanager
def one_maxtext(program: str) -> Iterator[None]:
    """Holds, for MaxText, a lock of this machine: all of its runs on CPUs take port 1234."""
    with (Path(tempfile.gettempdir()) / "maxtext-port-1234.lock").open("w") as lock:
        if program == "MaxText":
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_installed(program: str) -> bool:
    """Whether this machine has what a program needs."""
    return program not in INSTALLED or INSTALLED[program].exists()


def play(cell: Cell, folder: Path, trainer: Mapping[str, Any]) -> Seen:
    """Runs a cell to its end.

    Args:
        cell: What to do to whom.
        folder: Of this run; new.
        trainer: The `trainer` block, for the cells of the trainer.
    """
    with one_maxtext(cell.program):
        return _play(cell, folder, trainer)


def _play(cell: Cell, folder: Path, trainer: Mapping[str, Any]) -> Seen:
    folder.mkdir(parents=True)
    mark = folder / "mark"
    lines: list[tuple[float, str]] = []
    with subprocess.Popen(
        [sys.executable, "-m", "tpujob", "run", "job.yaml", "--json"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(cell, folder, mark, trainer),
    ) as run:
        assert run.stderr is not None
        assert run.stdout is not None
        reader = threading.Thread(target=_collect, args=(run.stderr, lines))
        reader.start()
        try:
            if cell.goes_on:
                _interrupt_when_named(run, lines, cell)
            code = run.wait(RUN_SECONDS)
            ended = time.time()
        finally:
            run.kill()
            reader.join()
        text = "".join(line for _, line in lines)
        last = run.stdout.read().splitlines()
    assert mark.exists(), f"it ended before the fault: {text}"
    begun = mark.stat().st_mtime
    again = [moment for moment, line in lines if " in the same containers: " in line]
    named = _named(lines, cell)
    is_interrupted = any("leaving at once" in line for _, line in lines)
    left = processes_of(folder)
    for pid in left:
        send(pid, 9)
    summary = json.loads(last[-1]) if last else {}
    first_named, first_again = (moments[0] - begun if moments else None for moments in (named, again))
    return Seen(cell, first_named, first_again, ended - begun, code, summary, text, is_interrupted, left)


def updated(page: str, seen: Sequence[Seen]) -> str:
    """The page with what was seen in its table: a row for each program and fault, a column for each way to play it."""
    before, rest = page.split(TABLE_BEGIN)
    table, after = rest.split(TABLE_END)
    entries: dict[tuple[str, str], list[str]] = {}
    for line in table.splitlines():
        program, *cells = [each.strip() for each in line.strip("|").split("|")]
        if program in PROGRAMS:
            entries[program, cells[0]] = cells[1:]
    columns = list(itertools.product((False, True), (0, 1)))
    for each in seen:
        row = entries.setdefault((each.cell.program, each.cell.fault), ["not run"] * len(columns))
        row[columns.index((each.cell.in_place, each.cell.victim))] = _entry(each)
    names = [f"in process {victim}{', in place' if in_place else ''}" for in_place, victim in columns]
    rows = [(*key, *entries[key]) for key in itertools.product(PROGRAMS, FAULTS) if key in entries]
    lines = [f"| {' | '.join(row)} |" for row in [("Program", "Fault", *names), *rows]]
    lines.insert(1, "|---" * (2 + len(names)) + "|")
    return "\n".join([before + TABLE_BEGIN, "", *lines, "", TABLE_END + after])


def write_between(begin: str, end: str, text: str) -> None:
    """Writes something into the page, between two of its comments."""
    page = PAGE.read_text()
    PAGE.write_text(f"{page.split(begin)[0]}{begin}\n\n{text}\n\n{end}{page.split(end)[1]}")


def _entry(seen: Seen) -> str:
    named = "never" if seen.named_seconds is None else f"{seen.named_seconds:.0f} s"
    if seen.again_seconds is not None:
        text = f"{named}; again after {seen.again_seconds:.0f} s"
    elif seen.is_interrupted:
        text = f"{named}; others go on"
    else:
        text = f"{seen.code}, {seen.culprit or 'nobody'}; {named}, {seen.seconds:.0f} s"
    return f"**{text}**" if seen.problems() else text


def _named(lines: Sequence[tuple[float, str]], cell: Cell) -> list[float]:
    """When lines named the process that has the fault."""
    names = (f"process {cell.victim} (", f"in the same containers: process {cell.victim} ")
    return [moment for moment, line in lines if any(name in line for name in names)]


def _interrupt_when_named(run: subprocess.Popen[str], lines: Sequence[tuple[float, str]], cell: Cell) -> None:
    """Ctrl-C twice, as a person who has read that the others wait for ever; nothing when the run ends before."""

    def has(condition: Callable[[], bool]) -> None:
        wait_for("the process to be named", lambda: run.poll() is not None or condition(), timeout_seconds=RUN_SECONDS)

    has(lambda: bool(_named(lines, cell)))
    run.send_signal(signal.SIGINT)
    has(lambda: any("stopping: " in line for _, line in lines))
    run.send_signal(signal.SIGINT)


def _environment(cell: Cell, folder: Path, mark: Path, trainer: Mapping[str, Any]) -> dict[str, str]:
    """Of `tpujob run`; writes its job."""
    spec: dict[str, Any] = _spec(cell, trainer)
    spec["gracePeriodSeconds"] = GRACE_SECONDS
    if cell.in_place:
        spec["inPlaceRestarts"] = 2
    write_job(folder / "job.yaml", "faulty", {"accelerator": "cpu:2x1", **spec})
    return {
        **base_environment(folder),
        "FAULT": cell.fault,
        "FAULT_STAGE": "step",
        "FAULT_PROCESS": str(cell.victim),
        "FAULT_MARK": str(mark),
    }


def base_environment(folder: Path) -> dict[str, str]:
    """Of `tpujob run` in a folder whose programs can have faults; puts them there."""
    (folder / "sitecustomize.py").write_text(_ARMED)
    return {
        **os.environ,
        **COMPILED_ONCE,
        "PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)]),
        # Of 6,000 modules of MaxText's, compiled by no installer: half of the time until it trains.
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(BYTECODE),
        "OMP_NUM_THREADS": "1",
        _MARK: str(folder),
    }


def _spec(cell: Cell, trainer: Mapping[str, Any]) -> dict[str, Any]:
    """What runs."""
    if cell.program == "trainer":
        # After the fault it finishes.
        steps = {"steps": 20} if cell.in_place else {}
        return {"trainer": {**trainer, **steps, "heartbeatSeconds": HEARTBEAT_SECONDS}}
    return spec_of(cell.program, steps=30 if cell.in_place else 100_000, period=1000)


def spec_of(program: str, *, steps: int, period: int) -> dict[str, Any]:
    """What runs, where it is not the trainer; steps, and those between checkpoints, are MaxText's."""
    if program == "plain JAX":
        return {"command": ["python3", "-m", "tests.multiprocess.plain_jax"]}
    if program == "PyTorch":
        return {"framework": "pytorch", "command": [str(PYTORCH), "-m", "tests.multiprocess.plain_torch"]}
    return maxtext_job.spec(steps=steps, period=period)


def _collect(stream: Any, lines: list[tuple[float, str]]) -> None:
    lines.extend((time.time(), line) for line in stream)


def processes_of(folder: Path) -> list[int]:
    """Living processes that inherited the mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={folder}".encode() in (entry / "environ").read_bytes().split(b"\0") and is_alive(
                int(entry.name)
            ):
                found.append(int(entry.name))
    return found
