"""One cell of the table of `tpujob run`: one fault in one of two processes, of four kinds of program.

What counts is what a person sees: how soon the process is named, when all have ended or started again, the exit code,
who is to blame.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.harness.processes import COMPILED_ONCE, REPOSITORY
from tests.workloads import maxtext_job
from tools.localcluster.processes import is_alive
from tpujob_launcher.child.processes import send

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
    "exit 0": 0,
}
"""Each with the exit code of the process that has it, which is that of `tpujob run`."""
NAMED_SECONDS = 10.0
"""From the fault until the process is named on the screen."""
ENDED_SECONDS = 30.0
"""From the fault until `tpujob run` has ended and no process is left."""
SLOW_SECONDS = {"SIGSTOP": 90.0, "exit 0": 90.0}
"""The same where a person may let the process go on, or finish the others: a launcher waits for a minute."""
BEGIN_SECONDS = 300.0
HEARTBEAT_SECONDS = 15
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
    def starts_again(self) -> bool:
        """Whether all start again in their containers after the fault."""
        return self.in_place and self.fault not in ("eviction", "exit 0")


TABLE = tuple(Cell(*cell) for cell in itertools.product(PROGRAMS, FAULTS, (0, 1), (False, True)))


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
    text: str
    left: Sequence[int]
    """Processes of it that were alive afterwards."""

    @property
    def culprit(self) -> str:
        """As the last line names it."""
        return str(self.summary.get("message", "")).partition(" (")[0]

    def problems(self) -> list[str]:
        """What is not as it should be, in words."""
        cell, found = self.cell, []
        if self.named_seconds is None or self.named_seconds > NAMED_SECONDS:
            found.append(f"named after {self.named_seconds} s")
        limit = SLOW_SECONDS.get(cell.fault, ENDED_SECONDS)
        if cell.starts_again:
            if self.again_seconds is None or self.again_seconds > limit:
                found.append(f"all started again after {self.again_seconds} s")
            if self.code != 0:
                found.append(f"exit code {self.code}, not 0")
        else:
            found += self._problems_of_end(limit)
        if self.left:
            found.append(f"left processes {self.left}")
        return found

    def _problems_of_end(self, limit: float) -> list[str]:
        cell, found = self.cell, []
        # The trainer's processes end at the heartbeat, before the launcher ends the frozen one.
        wanted = 1 if (cell.program, cell.fault) == ("trainer", "SIGSTOP") else FAULTS[cell.fault]
        if self.code != wanted:
            found.append(f"exit code {self.code}, not {wanted}")
        if cell.fault != "exit 75" and self.culprit != f"process {cell.victim}":
            found.append(f"the culprit is {self.culprit!r}, not process {cell.victim}")
        if self.seconds > limit:
            found.append(f"ended after {self.seconds:.0f} s")
        if cell.fault == "exception" and "RuntimeError: a fault on purpose" not in str(self.summary.get("cause")):
            found.append(f"the cause is {self.summary.get('cause')!r}")
        return found


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
            code = run.wait(BEGIN_SECONDS)
            ended = time.time()
        finally:
            run.kill()
            reader.join()
        text = "".join(line for _, line in lines)
        last = run.stdout.read().splitlines()
    assert mark.exists(), f"it ended before the fault: {text}"
    begun = mark.stat().st_mtime
    again = [moment for moment, line in lines if " in the same containers: " in line]
    names = (f"process {cell.victim} (", f"in the same containers: process {cell.victim} ")
    named = [moment for moment, line in lines if any(name in line for name in names)]
    left = _processes_of(folder)
    for pid in left:
        send(pid, 9)
    summary = json.loads(last[-1]) if last else {}
    first_named, first_again = (moments[0] - begun if moments else None for moments in (named, again))
    return Seen(cell, first_named, first_again, ended - begun, code, summary, text, left)


def markdown(seen: Sequence[Seen]) -> str:
    """The table: a row for each program and fault, a column for each victim, with and without restarts in place."""
    found = {each.cell: each for each in seen}
    columns = list(itertools.product((False, True), (0, 1)))
    names = [f"in process {victim}{', in place' if in_place else ''}" for in_place, victim in columns]
    lines = [f"| Program | Fault | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for program, fault in itertools.product(PROGRAMS, FAULTS):
        entries = [found.get(Cell(program, fault, victim, in_place)) for in_place, victim in columns]
        if any(entries):
            lines.append(f"| {program} | {fault} | {' | '.join(_entry(each) for each in entries)} |")
    return "\n".join(lines)


def _entry(seen: Seen | None) -> str:
    if seen is None:
        return "not run"
    named = "never" if seen.named_seconds is None else f"{seen.named_seconds:.0f} s"
    if seen.again_seconds is not None:
        text = f"{named}; again after {seen.again_seconds:.0f} s"
    else:
        text = f"{seen.code}, {seen.culprit or 'nobody'}; {named}, {seen.seconds:.0f} s"
    return f"**{text}**" if seen.problems() else text


def _environment(cell: Cell, folder: Path, mark: Path, trainer: Mapping[str, Any]) -> dict[str, str]:
    """Of `tpujob run`; writes its job."""
    (folder / "sitecustomize.py").write_text(_ARMED)
    spec: dict[str, Any] = _spec(cell, trainer)
    if cell.in_place:
        spec["inPlaceRestarts"] = 2
    job = {
        "apiVersion": "tpujob.dev/v1alpha1",
        "kind": "TpuTrainingJob",
        "metadata": {"name": "faulty"},
        "spec": {"accelerator": "cpu:2x1", **spec},
    }
    YAML().dump(job, folder / "job.yaml")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(REPOSITORY)]),
        **COMPILED_ONCE,
        "OMP_NUM_THREADS": "1",
        "FAULT": cell.fault,
        "FAULT_STAGE": "step",
        "FAULT_PROCESS": str(cell.victim),
        "FAULT_MARK": str(mark),
        _MARK: str(folder),
    }


def _spec(cell: Cell, trainer: Mapping[str, Any]) -> dict[str, Any]:
    """What runs."""
    if cell.program == "trainer":
        # After the fault it finishes.
        steps = {"steps": 20} if cell.in_place else {}
        return {"trainer": {**trainer, **steps, "heartbeatSeconds": HEARTBEAT_SECONDS}}
    if cell.program == "plain JAX":
        return {"command": ["python3", "-m", "tests.multiprocess.plain_jax"]}
    if cell.program == "PyTorch":
        return {"framework": "pytorch", "command": [str(PYTORCH), "-m", "tests.multiprocess.plain_torch"]}
    return maxtext_job.spec(steps=30 if cell.in_place else 100_000, period=1000)


def _collect(stream: Any, lines: list[tuple[float, str]]) -> None:
    lines.extend((time.time(), line) for line in stream)


def _processes_of(folder: Path) -> list[int]:
    """Living processes that inherited the mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={folder}".encode() in (entry / "environ").read_bytes().split(b"\0") and is_alive(
                int(entry.name)
            ):
                found.append(int(entry.name))
    return found
