"""One cell of the fault table: one fault, in one process of two, in one stage, and what became of everybody."""

import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.harness import processes
from tests.multiprocess.faulty_trainer import STAGES
from tools.localcluster.waiting import POLL_SECONDS, wait_for

TABLE_FAULTS = ("exception", "sys.exit", "kill -9", "SIGSTOP", "sleep", "SIGTERM")
VICTIMS = (0, 1)
LIMIT_SECONDS = 45.0
"""From the fault to the end of every process that can end."""
BEGIN_SECONDS = 400.0
"""For a run to come to its fault, beside others."""
GRACE_SECONDS = 15
"""Of spot nodes."""
GRACE_SECONDS_TO_SAVE = 40
"""Enough for a save on a busy machine, and within the limit."""
WATCHDOG = {"stepSeconds": 20, "phaseSeconds": 30}
"""Short, for a sleep has to be noticed within the limit; too short for a compile on a busy machine, so it begins to
look when the fault has come."""
HEARTBEAT_SECONDS = 15
"""Two fifths of it after the fault a straggler is named in the report: before the watchdog ends the run."""
LAUNCHED = ("-m", "tpujob_contract.launch", "--", sys.executable, "-m", "tests.multiprocess.faulty_trainer")

CODES = {
    "exception": (1, 1),
    "sys.exit": (3, 1),
    "kill -9": (137, 1),
    "SIGSTOP": (137, 1),
    "sleep": (79, 79),
    "SIGTERM": (75, 75),
}
"""Exit code of the victim and of the others; a frozen process is killed by its launcher."""
CAUSES = {
    "exception": "RuntimeError: a fault on purpose",
    "sys.exit": "sys.exit(3)",
    "kill -9": "killed by SIGKILL",
    "SIGSTOP": "silent for",
    "sleep": "behind the others",
    "SIGTERM": "SIGTERM",
}
"""What every message has to say beside the name of the culprit."""
SLEEPS = "in _sleep"
"""In the stack of a process that has the fault `sleep`."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One place of the table."""

    fault: str
    victim: int
    stage: str

    @property
    def key(self) -> str:
        """As a test's id and a folder's name."""
        return f"{self.fault}-{self.victim}-{self.stage}".replace(" ", "")


TABLE = tuple(Cell(*cell) for cell in itertools.product(TABLE_FAULTS, VICTIMS, STAGES))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a cell's processes."""

    cell: Cell
    codes: tuple[int | None, ...]
    """As the container ends; None: it did not."""
    messages: tuple[str, ...]
    """Termination messages."""
    seconds: float
    """From the fault to the end of the last process that can end."""
    stacks: tuple[str, ...]
    """Those that were left in the checkpoint directory, by process."""
    straggler: str
    """Whom the report of process 0 named while they slept."""
    last: Mapping[str, Any]
    """The report that was left there; empty where none was."""
    explanation: str

    def problems(self) -> list[str]:
        """What is not as it should be, in words."""
        cell, found = self.cell, []
        victim_code, other_code = CODES[cell.fault]
        for index, (code, message) in enumerate(zip(self.codes, self.messages, strict=True)):
            wanted = victim_code if index == cell.victim else other_code
            if code != wanted:
                found.append(f"process {index} has exit code {code}, not {wanted}")
            if index == cell.victim and cell.fault in ("kill -9", "SIGSTOP"):
                continue  # It could not say a word.
            if f"process {cell.victim} " not in message:
                found.append(f"process {index} does not name process {cell.victim}: {message!r}")
            if CAUSES[cell.fault] not in message:
                found.append(f"process {index} does not say {CAUSES[cell.fault]!r}: {message!r}")
        if self.seconds > LIMIT_SECONDS:
            found.append(f"it took {self.seconds:.0f} s")
        return found


def run(cell: Cell, folder: Path, config: Mapping[str, Any], **arguments: Any) -> Outcome:
    """Plays a cell to its end.

    Args:
        cell: What to do to whom, and when.
        folder: For logs and the checkpoint directory; new.
        config: The `trainer` block.
        arguments: More for `processes.start`.
    """
    folder.mkdir(parents=True)
    mark = folder / "mark"
    config = {**config, "heartbeatSeconds": HEARTBEAT_SECONDS}
    if cell.stage == "evaluate":
        config = {**config, "evaluation": {"everySteps": 3, "batches": 4}}
    if cell.stage == "sample":
        config = {**config, "sample": {"prompt": "0", "tokens": 4, "everySteps": 3}}
    if cell.fault == "sleep":
        config = {**config, "watchdog": WATCHDOG}
    arguments.setdefault("grace_seconds", GRACE_SECONDS_TO_SAVE if cell.stage == "sample" else GRACE_SECONDS)
    arguments.setdefault("startup_seconds", int(BEGIN_SECONDS))
    with processes.start(
        folder / "logs",
        processes=2,
        devices=1,
        config=config,
        checkpoint_dir=folder / "checkpoints",
        program=LAUNCHED,
        extra=environment(cell, mark),
        **arguments,
    ) as attempt:
        begun = wait_for_strike(attempt, mark)
        straggler = wait_for_straggler(attempt) if cell.fault == "sleep" else ""
        ended = wait_for_end(attempt, (0, 1))
        return Outcome(
            cell,
            tuple(member.poll() for member in attempt.members),
            tuple(member.termination_message for member in attempt.members),
            ended - begun,
            tuple(file.read_text() for file in sorted((folder / "checkpoints" / "attempts").glob("*.stacks-*.txt"))),
            straggler,
            last_report(folder / "checkpoints"),
            attempt.explain(),
        )


def wait_for_straggler(attempt: processes.Run) -> str:
    """What the report of process 0 says once it tells of the sleep; else what it said last, empty for nothing.

    Before, it may tell of a process that was slower to compile.
    """
    said = ""
    while attempt[0].poll() is None and SLEEPS not in said:
        said = (attempt[0].report() or {}).get("straggler_message") or said
        time.sleep(POLL_SECONDS)
    return said


def last_report(checkpoints: Path) -> dict[str, Any]:
    """Of process 0."""
    files = sorted((checkpoints / "attempts").glob("*.json"))
    return json.loads(files[-1].read_text()) if files else {}


def environment(cell: Cell, mark: Path) -> dict[str, str]:
    """What makes the program of `faulty_trainer` play the cell, and make the file `mark` then."""
    return {
        "FAULT": cell.fault,
        "FAULT_STAGE": cell.stage,
        "FAULT_PROCESS": str(cell.victim),
        "FAULT_MARK": str(mark),
    }


def wait_for_strike(attempt: processes.Run, mark: Path) -> float:
    """When the fault came, in Unix seconds."""

    def struck() -> bool:
        if not mark.exists() and any(member.poll() is not None for member in attempt.members):
            raise AssertionError(f"a process ended before the fault; {attempt.explain()}")
        return mark.exists()

    wait_for("the fault", struck, timeout_seconds=BEGIN_SECONDS, explain=attempt.explain)
    return mark.stat().st_mtime


def wait_for_end(attempt: processes.Run, awaited: Sequence[int]) -> float:
    """When the last of the awaited processes had ended, in Unix seconds, or the limit was over by far."""
    deadline = time.monotonic() + LIMIT_SECONDS + 15
    while time.monotonic() < deadline and None in [attempt[index].poll() for index in awaited]:
        time.sleep(POLL_SECONDS)
    return time.time()


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The table: a row for each fault and victim, a column for each stage."""
    found = {outcome.cell: outcome for outcome in outcomes}
    lines = [
        "| Fault | in process | " + " | ".join(STAGES) + " |",
        "|---|---|" + "---|" * len(STAGES),
    ]
    for fault, victim in itertools.product(TABLE_FAULTS, VICTIMS):
        row = [_entry(found.get(Cell(fault, victim, stage))) for stage in STAGES]
        lines.append(f"| {fault} | {victim} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def _entry(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not run"
    victim = outcome.codes[outcome.cell.victim]
    others = outcome.codes[1 - outcome.cell.victim]
    text = f"{victim} / {others}, {outcome.seconds:.0f} s"
    return f"**{text}**" if outcome.problems() else text
