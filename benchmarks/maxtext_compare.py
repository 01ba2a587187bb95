"""Our train step beside MaxText's, both compiled for TPUs on this machine, which has none.

    make bench-maxtext                      # all cases, one after the other: two hours on two cores
    make bench-maxtext CASES=llama2-7b-v5e  # those whose name contains it

Both by the same libtpu, with the same dtypes, AdamW in float32, full rematerialisation, splash attention and packed
rows. Memory and operations are as the compiler and the text of its program say; bytes are what a device sends if each
exchange goes round a ring. Attention's kernels are in neither count of operations. Compile time is CPU time of the
process, as other work on the machine does not change it much; tracing is not in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob_trainer.train.compile.collectives import Exchange, exchanges
from tpujob_trainer.train.compile.matrix_products import matrix_operations

ROOT = Path(__file__).parents[1]
MAXTEXT = ROOT / ".cache" / "maxtext" / "bin" / "python"
LIBTPU = ROOT / ".cache" / "libtpu"


@dataclass(frozen=True)
class Case:
    """A model on a number of slices, with so many rows of a device."""

    model: str
    generation: str
    shape: str
    theirs: str
    """The slice as MaxText names it."""
    rows: int
    length: int
    slices: int = 1
    quantization: str = ""
    """As both name it; empty: none."""

    @property
    def name(self) -> str:
        """As it is chosen on the command line."""
        narrow = f"-{self.quantization}" if self.quantization else ""
        return f"{self.model}-{self.slices if self.slices > 1 else ''}{self.theirs}{narrow}"


CASES = (
    Case("llama2-7b", "v5e", "4x4", "v5e-16", 4, 2048),
    Case("llama3-8b", "v5e", "4x4", "v5e-16", 1, 8192),
    Case("llama3-8b", "v5e", "4x4", "v5e-16", 1, 8192, quantization="int8"),
    Case("llama3-8b", "v5p", "2x2x4", "v5p-32", 2, 8192),
    Case("qwen2.5-7b", "v6e", "4x4", "v6e-16", 2, 4096),
    Case("llama3-8b", "v6e", "8x8", "v6e-64", 1, 8192, slices=2),
    Case("mistral-7b", "v6e", "4x4", "v6e-16", 1, 8192),
    Case("gemma2-9b", "v6e", "4x8", "v6e-32", 1, 8192),
    Case("llama3-70b", "v5p", "4x4x8", "v5p-256", 1, 8192),
    Case("mixtral-8x7b", "v5p", "2x4x4", "v5p-64", 1, 8192),
    Case("llama3-8b", "v5e", "8x8", "v5e-64", 1, 8192, slices=2),
    Case("mixtral-8x22b", "v5p", "4x4x4", "v5p-128", 1, 8192),
    Case("llama3.1-405b", "v5p", "4x8x8", "v5p-512", 1, 8192),
)


@dataclass(frozen=True)
class Figures:
    """What a compiled program says of itself, for one device."""

    peak_bytes: int
    operations: int
    link_bytes: int
    slice_bytes: int
    """Between slices."""
    waiting_bytes: int
    """Sent within a slice in a loop, while nothing is computed."""
    cpu_seconds: float


def measured(command: list[str], per_slice: int) -> Figures:
    """Runs a program that compiles a step, and reads what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": f"{LIBTPU}"}
        subprocess.run([part.format(folder=folder) for part in command], env=environment, check=True)
        told: dict[str, Any] = json.loads((Path(folder) / "figures.json").read_text())
        text = (Path(folder) / "program.txt").read_text()
    found = exchanges(text, devices_per_slice=per_slice)
    return Figures(
        peak_bytes=told["peak_bytes"],
        operations=matrix_operations(text),
        link_bytes=sum(each.sent_bytes for each in found if not each.is_between_slices),
        slice_bytes=sum(each.sent_bytes for each in found if each.is_between_slices),
        waiting_bytes=sum(each.sent_bytes for each in found if _waits(each)),
        cpu_seconds=told["cpu_seconds"],
    )


def _waits(each: Exchange) -> bool:
    return each.is_in_loop and not each.is_asynchronous and not each.is_between_slices


def compared(case: Case) -> tuple[Figures, Figures]:
    """Our figures, and MaxText's."""
    per_slice = 1
    for size in case.shape.split("x"):
        per_slice *= int(size)
    numbers = [str(number) for number in (case.slices, case.rows, case.length)]
    program = str(ROOT / "benchmarks" / "our_step.py")
    ours = [sys.executable, program, "{folder}", case.model, case.generation, case.shape, *numbers, case.quantization]
    theirs = [str(MAXTEXT), str(ROOT / "benchmarks" / "maxtext_step.py"), "{folder}"]
    theirs += [f"model_name={case.model}", f"compile_topology={case.theirs}"]
    theirs += [f"compile_topology_num_slices={case.slices}", f"per_device_batch_size={case.rows}"]
    theirs += [f"max_target_length={case.length}", f"quantization={case.quantization}"]
    return measured(ours, per_slice), measured(theirs, per_slice)


def line(name: str, ours: Figures, theirs: Figures) -> str:
    """A row of the table: ours / theirs and the ratio."""

    def pair(mine: float, other: float, unit: float) -> str:
        ratio = f" ({mine / other:.3f})" if other else ""
        return f"{mine / unit:.2f} / {other / unit:.2f}{ratio}"

    cells = [
        pair(ours.peak_bytes, theirs.peak_bytes, 1e9),
        pair(ours.operations, theirs.operations, 1e12),
        pair(ours.link_bytes, theirs.link_bytes, 1e9),
        pair(ours.slice_bytes, theirs.slice_bytes, 1e9) if theirs.slice_bytes else "-",
        pair(ours.waiting_bytes, theirs.waiting_bytes, 1e9),
        pair(ours.cpu_seconds, theirs.cpu_seconds, 1),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Prints the table."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    print("| ours / MaxText (ratio) | peak GB | TFLOP | links GB | between slices GB | loops wait GB | compile CPU s |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        if wanted in case.name:
            print(line(case.name, *compared(case)), flush=True)


if __name__ == "__main__":
    main()
