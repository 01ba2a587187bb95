"""One cell of the table of `tpujob run`: one fault in one of two processes, of a plain JAX program or of the trainer.

What counts is what a person sees: how soon the process is named, when all have ended, the exit code, who is to blame.
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
from tools.localcluster.processes import is_alive
from tpujob_launcher.child.processes import send

PROGRAMS = ("plain JAX", "trainer")
FAULTS = {"exception": 1, "sys.exit": 3, "os._exit": 3, "kill -9": 137, "SIGSTOP": 137}
"""Each with the exit code of the process that has it, which is that of `tpujob run`."""
NAMED_SECONDS = 10.0
"""From the fault until the process is named on the screen."""
ENDED_SECONDS = 30.0
"""From the fault until `tpujob run` has ended and no process is left."""
FROZEN_ENDED_SECONDS = 90.0
"""The same for a frozen process: a person may let it go on, and a launcher waits for a minute."""
BEGIN_SECONDS = 300.0
HEARTBEAT_SECONDS = 15
_MARK = "PROGRAM_FAULT_FOLDER"
_ARMED = """
import os, sys
if sys.orig_argv[1:3] == ["-m", "tpujob_trainer"]:
    from tests.multiprocess.faulty_trainer import prepare
    prepare()
"""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One place of the table."""

    program: str
    fault: str
    victim: int

    @property
    def key(self) -> str:
        """As a test's id and a folder's name."""
        return f"{self.program}-{self.fault}-{self.victim}".replace(" ", "")


TABLE = tuple(Cell(*cell) for cell in itertools.product(PROGRAMS, FAULTS, (0, 1)))


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a person saw of a cell."""

    cell: Cell
    named_seconds: float | None
    """From the fault to the first line that names the process; None: no line did before the end."""
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
        # The trainer's processes end at the heartbeat, before the launcher ends the frozen one.
        wanted = 1 if (cell.program, cell.fault) == ("trainer", "SIGSTOP") else FAULTS[cell.fault]
        if self.code != wanted:
            found.append(f"exit code {self.code}, not {wanted}")
        if self.culprit != f"process {cell.victim}":
            found.append(f"the culprit is {self.culprit!r}, not process {cell.victim}")
        if self.named_seconds is None or self.named_seconds > NAMED_SECONDS:
            found.append(f"named after {self.named_seconds} s")
        if self.seconds > (FROZEN_ENDED_SECONDS if cell.fault == "SIGSTOP" else ENDED_SECONDS):
            found.append(f"ended after {self.seconds:.0f} s")
        if cell.fault == "exception" and "RuntimeError: a fault on purpose" not in str(self.summary.get("cause")):
            found.append(f"the cause is {self.summary.get('cause')!r}")
        if self.left:
            found.append(f"left processes {self.left}")
        return found


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
    named = [moment for moment, line in lines if line.removeprefix("failed: ").startswith(f"process {cell.victim} (")]
    left = _processes_of(folder)
    for pid in left:
        send(pid, 9)
    summary = json.loads(last[-1]) if last else {}
    return Seen(cell, named[0] - begun if named else None, ended - begun, code, summary, text, left)


def markdown(seen: Sequence[Seen]) -> str:
    """The table: a row for each program and fault, a column for each victim."""
    found = {each.cell: each for each in seen}
    lines = ["| Program | Fault | in process 0 | in process 1 |", "|---|---|---|---|"]
    for program, fault in itertools.product(PROGRAMS, FAULTS):
        row = " | ".join(_entry(found.get(Cell(program, fault, victim))) for victim in (0, 1))
        lines.append(f"| {program} | {fault} | {row} |")
    return "\n".join(lines)


def _entry(seen: Seen | None) -> str:
    if seen is None:
        return "not run"
    named = "never" if seen.named_seconds is None else f"{seen.named_seconds:.0f} s"
    text = f"{seen.code}, {seen.culprit}; {named}, {seen.seconds:.0f} s"
    return f"**{text}**" if seen.problems() else text


def _environment(cell: Cell, folder: Path, mark: Path, trainer: Mapping[str, Any]) -> dict[str, str]:
    """Of `tpujob run`; writes its job."""
    if cell.program == "trainer":
        (folder / "sitecustomize.py").write_text(_ARMED)
        spec: dict[str, Any] = {"trainer": {**trainer, "heartbeatSeconds": HEARTBEAT_SECONDS}}
    else:
        spec = {"command": ["python3", "-m", "tests.multiprocess.plain_jax"]}
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
        "FAULT": cell.fault,
        "FAULT_STAGE": "step",
        "FAULT_PROCESS": str(cell.victim),
        "FAULT_MARK": str(mark),
        _MARK: str(folder),
    }


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
