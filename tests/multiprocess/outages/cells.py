"""One fault of the world at one moment of a run, and what became of the run."""

import dataclasses
import os
import re
from collections.abc import Sequence

from tests.multiprocess.outages.faults import BY_NAME, FAULTS, OUTAGE_SECONDS, Fault

STAGES = ("start", "data", "compile", "step", "save", "restore", "evaluate", "export", "extract", "stop")
PROCESSES = 2
VICTIM = 0
"""Of faults that hit one process."""
STEPS, EVERY = 12, 4
UNITS, UNIT_ROWS = 16, 4
"""Of the extraction."""
STOPPED_AT = 5
"""Steps that are done when the request to stop comes before the sixth."""
FAIL_AFTER_SECONDS = 20
OUTAGE_LIMIT_SECONDS = 120
"""In its place for a fault that passes."""
RETRY_SECONDS = 30
"""Longer than an outage."""
GRACE_SECONDS = 60
STEP_SECONDS, PHASE_SECONDS = 90, 150
"""Of the watchdog: what does not answer is not waited for without end. More than a compile takes on a busy machine."""
UPLOAD_SECONDS = 360
"""For which a worker tries to upload a file, to read the next rows and to give up its leases, with the tries of the
libraries below it."""
LIMIT_SECONDS = 120.0
"""From the end of a fault, or from the moment at which its run gives up, to the end of all processes."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One place of the table."""

    fault: str
    stage: str

    @property
    def key(self) -> str:
        """As a test's id and a folder's name."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.fault}-{self.stage}".lower())


def makes_sense(cell: Cell) -> bool:
    """Whether the fault can be met at that stage: data are not on the small disk."""
    return not (BY_NAME[cell.fault].target == "disk" and cell.stage == "data")


TABLE = tuple(cell for fault in FAULTS for stage in STAGES if makes_sense(cell := Cell(fault.name, stage)))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a cell's run."""

    cell: Cell
    codes: tuple[int | None, ...]
    messages: tuple[str, ...]
    seconds: float
    """From the fault to the end of the last process that can end."""
    promised: int
    """What the logs called committed: a step, or a number of units."""
    kept: int
    """What is there at the end."""
    wrong_losses: tuple[int, ...]
    """Steps whose loss is not the undisturbed run's."""
    address: str
    explanation: str

    def problems(self) -> list[str]:
        """What is not as it should be, in words."""
        fault, found = BY_NAME[self.cell.fault], []
        found += [f"exit codes {self.codes}, not {wanted}" for wanted in self._wanted_codes(fault)]
        if self.wrong_losses:
            found.append(f"the losses of steps {self.wrong_losses} differ from those of an undisturbed run")
        if self.kept < self.promised:
            found.append(f"{self.promised} was committed, and {self.kept} is there")
        if fault.passes and self.kept < self._whole() and 1 not in self.codes:
            found.append(f"{self.kept} is there, not {self._whole()}")
        limit = LIMIT_SECONDS + patience(self.cell)
        if self.seconds > limit:
            found.append(f"it took {self.seconds:.0f} s, more than {limit:.0f}")
        return found + self._silent(fault)

    def _wanted_codes(self, fault: Fault) -> list[str]:
        """The codes that would do, in words; empty where they are those."""
        victim, other = self.codes[VICTIM], self.codes[1 - VICTIM]
        is_extract = self.cell.stage == "extract"
        if fault.passes:
            wanted: set[tuple[int | None, int]] = {(75, 75)} if self.cell.stage == "stop" else {(0, 0)}
            if self._needs_another_attempt(fault):
                wanted |= {(1, 1)}
        elif fault.target == "process":
            dead = None if fault.act == "SIGSTOP" else 137
            wanted = {(dead, 0)} if is_extract else {(dead, 1)}
            if self.cell.stage == "stop":
                wanted |= {(dead, 75)}  # it may have been killed at the end of its grace period
        else:
            wanted = {(77, 77)} if fault.is_refusal else {(1, 1)}
            if fault.is_silent:
                wanted |= {(79, 79)}
            if self.cell.stage == "stop":
                # Asked to end while nothing can be saved: that it ended is as asked, what is lost is said.
                wanted |= {(75, 75)}
        return [] if (victim, other) in wanted else [str(sorted(wanted, key=str))]

    def _needs_another_attempt(self, fault: Fault) -> bool:
        """Whether the run may end, to be tried again: a full disk keeps it from its first files."""
        return fault.target == "disk" and self.cell.stage in ("start", "extract")

    def _silent(self, fault: Fault) -> list[str]:
        """Messages that do not say what it was."""
        if fault.passes:
            return []
        if fault.target == "process":
            told = self.messages[1 - VICTIM]
            is_named = self.cell.stage == "extract" or f"process {VICTIM}" in told
            return [] if is_named else [f"the other one does not name process {VICTIM}: {told!r}"]
        if 75 in self.codes:
            return []
        if 79 in self.codes:
            return [f"{text!r} says no phase" for text in self.messages if "no progress for" not in text]
        said = (self.address, "text.parquet")
        return [f"the address is not in {text!r}" for text in self.messages if not any(each in text for each in said)]

    def _whole(self) -> int:
        if self.cell.stage == "extract":
            return UNITS
        return STOPPED_AT if self.cell.stage == "stop" else STEPS


def patience(cell: Cell) -> float:
    """For which a run may wait for its storage."""
    fault = BY_NAME[cell.fault]
    if fault.passes:
        return OUTAGE_SECONDS
    if fault.is_silent:
        return PHASE_SECONDS if cell.stage != "extract" else UPLOAD_SECONDS + PHASE_SECONDS
    return UPLOAD_SECONDS if cell.stage == "extract" else FAIL_AFTER_SECONDS + RETRY_SECONDS


def can_play(cell: Cell) -> bool:
    """Whether this machine has what the cell needs."""
    fault = BY_NAME[cell.fault]
    is_root = os.geteuid() == 0
    return (is_root or (fault.target != "disk" and fault.needs is None)) and (
        fault.needs is None or os.access(fault.needs, os.W_OK)
    )


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The table: a row for each fault, a column for each stage."""
    found = {outcome.cell: outcome for outcome in outcomes}
    lines = ["| Fault | " + " | ".join(STAGES) + " |", "|---|" + "---|" * len(STAGES)]
    for fault in FAULTS:
        row = [_entry(Cell(fault.name, stage), found.get(Cell(fault.name, stage))) for stage in STAGES]
        lines.append(f"| {fault.name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def _entry(cell: Cell, outcome: Outcome | None) -> str:
    if outcome is None:
        return "not run" if makes_sense(cell) else "–"
    codes = ["frozen" if code is None else str(code) for code in outcome.codes]
    text = " / ".join(codes if len(set(codes)) > 1 else codes[:1]) + f", {outcome.seconds:.0f} s"
    unit = " units" if cell.stage == "extract" else ""
    text += f", kept {outcome.kept}{unit}"
    return f"**{text}**" if outcome.problems() else text
