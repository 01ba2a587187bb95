"""The table in benchmarks/README.md about our step and MaxText's, from the figures of `make bench-maxtext`."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

RECORDS = Path(__file__).with_name("maxtext.jsonl")
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- make bench-maxtext -->\n", "<!-- end -->\n"


@dataclass(frozen=True)
class Figures:
    """The figures of a compiled program, for one device."""

    peak_bytes: int
    operations: int
    link_bytes: int
    """Sent within a slice."""
    slice_bytes: int
    """Sent between slices."""
    waiting_gather_bytes: int
    """Sent within a slice by synchronous gathers in a loop, during which nothing is computed."""
    waiting_other_bytes: int
    """The same for sums, scatters and exchanges of tokens."""
    cpu_seconds: float

    @property
    def waiting_bytes(self) -> int:
        """Sent within a slice by all synchronous exchanges in loops."""
        return self.waiting_gather_bytes + self.waiting_other_bytes


def read_records() -> dict[tuple[str, str], Figures]:
    """The figures in the file, by case and side ("ours" or "maxtext")."""
    if not RECORDS.exists():
        return {}
    records = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    return {(each.pop("case"), each.pop("side")): Figures(**each) for each in records}


def table(records: dict[tuple[str, str], Figures]) -> str:
    """The Markdown table with a row for each case that both sides compiled; ordered by our largest loss."""
    names = [name for name, side in records if side == "ours" and (name, "maxtext") in records]
    rows = {name: (records[name, "ours"], records[name, "maxtext"]) for name in names}
    ordered = sorted(names, key=lambda name: -max(ratio for _, ratio in _lost(*rows[name])))
    return "\n".join(
        [
            (
                "| | lost | peak HBM, GB | sent within a slice, GB | waits: gathers, GB | waits: sums and others, GB | "
                "between slices, GB | TFLOP | compile, CPU s |"
            ),
            "|---|---|---|---|---|---|---|---|---|",
            *(_row(name, *rows[name]) for name in ordered),
            "",
        ]
    )


def _lost(ours: Figures, theirs: Figures) -> list[tuple[str, float]]:
    """Our figure relative to MaxText's, for the figures that decide whether a step fits and how long it waits."""
    pairs = {
        "peak": (ours.peak_bytes, theirs.peak_bytes),
        "sent": (ours.link_bytes, theirs.link_bytes),
        "waiting": (ours.waiting_bytes, theirs.waiting_bytes),
        "between slices": (ours.slice_bytes, theirs.slice_bytes),
    }
    return [(name, mine / other if other else (math.inf if mine else 1.0)) for name, (mine, other) in pairs.items()]


def _row(name: str, ours: Figures, theirs: Figures) -> str:
    def pair(mine: float, other: float, unit: float, digits: int = 1) -> str:
        return f"{mine / unit:.{digits}f} / {other / unit:.{digits}f}" if mine or other else "-"

    lost = [f"{what} {ratio:.{0 if ratio >= 10 else 2}f}" for what, ratio in _lost(ours, theirs) if ratio > 1.005]
    cells = [
        ", ".join(lost) or "nothing",
        pair(ours.peak_bytes, theirs.peak_bytes, 1e9),
        pair(ours.link_bytes, theirs.link_bytes, 1e9),
        pair(ours.waiting_gather_bytes, theirs.waiting_gather_bytes, 1e9),
        pair(ours.waiting_other_bytes, theirs.waiting_other_bytes, 1e9),
        pair(ours.slice_bytes, theirs.slice_bytes, 1e9, 3),
        pair(ours.operations, theirs.operations, 1e12),
        pair(ours.cpu_seconds, theirs.cpu_seconds, 1, 0),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def write_table() -> None:
    """Writes the table between its marks in the README."""
    text = README.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END, 1)
    README.write_text(before + BEGIN + table(read_records()) + END + after)
