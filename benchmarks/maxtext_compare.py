"""Compares our train step with MaxText's; both are compiled for TPUs on this machine, which has none.

    make bench-maxtext                      # cases missing in benchmarks/maxtext.jsonl; all: two hours on two cores
    make bench-maxtext CASES="llama2-7b, v5e"  # those whose name contains it

Both use the same libtpu, the same flags (those that the operator sets for either), dtypes, AdamW in float32, full
rematerialisation, splash attention and packed rows. Memory and operations come from the compiler and the text of its
program; bytes are those that a device sends if each exchange uses a ring. Neither count of operations includes the
kernels of attention. Compile time is CPU time of the process, as other work on the machine hardly affects it; it does
not include tracing.

Each compiled program adds a line to the file. To compile one again, delete its line.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.maxtext_table import RECORDS, Figures, read_records, write_table
from tpujob_resource.topology.libtpu_flags import ENVIRONMENT_VARIABLE, merge_flags, recommended_flags
from tpujob_trainer.train.compile.collectives import exchanges
from tpujob_trainer.train.compile.matrix_products import matrix_operations

ROOT = Path(__file__).parents[1]
MAXTEXT = ROOT / ".cache" / "maxtext" / "bin" / "python"
LIBTPU = ROOT / ".cache" / "libtpu"


@dataclass(frozen=True)
class Case:
    """A model on a number of slices, with a number of rows per device."""

    model: str
    generation: str
    shape: str
    theirs: str
    """MaxText's name of the slice."""
    rows: int
    length: int
    slices: int = 1
    quantization: str = ""
    """The name in both; empty: none."""

    @property
    def name(self) -> str:
        """The name on the command line and in the table."""
        narrow = f" {self.quantization}" if self.quantization else ""
        slices = f"{self.slices} x " if self.slices > 1 else ""
        return f"{self.model}{narrow}, {slices}{self.theirs}, {self.rows} x {self.length}"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Chips along each side of a slice."""
        return tuple(int(size) for size in self.shape.split("x"))


CASES = (
    Case("llama2-7b", "v5e", "4x4", "v5e-16", 4, 2048),
    Case("llama3-8b", "v5e", "4x4", "v5e-16", 1, 8192),
    Case("llama3-8b", "v5e", "4x4", "v5e-16", 1, 8192, quantization="int8"),
    Case("llama3-8b", "v5p", "2x2x4", "v5p-32", 2, 8192),
    Case("qwen2.5-7b", "v6e", "4x4", "v6e-16", 2, 4096),
    Case("llama3-8b", "v6e", "8x8", "v6e-64", 1, 8192, slices=2),
    Case("mistral-7b", "v6e", "4x4", "v6e-16", 1, 8192),
    Case("gemma2-9b", "v6e", "4x8", "v6e-32", 1, 8192),
    Case("mixtral-8x7b", "v5p", "2x4x4", "v5p-64", 1, 8192),
    Case("llama3-8b", "v5e", "8x8", "v5e-64", 1, 8192, slices=2),
    Case("llama3-70b", "v5p", "4x4x8", "v5p-256", 1, 8192),
    Case("mixtral-8x22b", "v5p", "4x4x4", "v5p-128", 1, 8192),
    Case("llama3.1-405b", "v5p", "4x8x8", "v5p-512", 1, 8192),
)


def measured(command: list[str], case: Case) -> Figures:
    """Runs a program that compiles a step; returns the figures in its output."""
    flags = merge_flags(recommended_flags(case.generation, case.slices), os.environ.get(ENVIRONMENT_VARIABLE, ""))
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": f"{LIBTPU}", ENVIRONMENT_VARIABLE: flags}
        subprocess.run([part.format(folder=folder) for part in command], env=environment, check=True)
        told: dict[str, Any] = json.loads((Path(folder) / "figures.json").read_text())
        text = (Path(folder) / "program.txt").read_text()
    found = exchanges(text, devices_per_slice=math.prod(case.sizes))
    within = [each for each in found if not each.is_between_slices]
    waiting = [each for each in within if each.is_in_loop and not each.is_asynchronous]
    return Figures(
        peak_bytes=told["peak_bytes"],
        operations=matrix_operations(text),
        link_bytes=sum(each.sent_bytes for each in within),
        slice_bytes=sum(each.sent_bytes for each in found if each.is_between_slices),
        waiting_gather_bytes=sum(each.sent_bytes for each in waiting if each.kind == "all-gather"),
        waiting_other_bytes=sum(each.sent_bytes for each in waiting if each.kind != "all-gather"),
        cpu_seconds=round(told["cpu_seconds"], 1),
    )


def commands(case: Case) -> dict[str, list[str]]:
    """The commands that compile the step, by side."""
    numbers = [str(number) for number in (case.slices, case.rows, case.length)]
    program = str(ROOT / "benchmarks" / "our_step.py")
    theirs = [str(MAXTEXT), str(ROOT / "benchmarks" / "maxtext_step.py"), "{folder}"]
    theirs += [f"model_name={case.model}", f"compile_topology={case.theirs}"]
    theirs += [f"compile_topology_num_slices={case.slices}", f"per_device_batch_size={case.rows}"]
    theirs += [f"max_target_length={case.length}", f"quantization={case.quantization}"]
    ours = [sys.executable, program, "{folder}", case.model, case.generation, case.shape, *numbers, case.quantization]
    return {"maxtext": theirs, "ours": ours}


def main() -> None:
    """Compiles the cases that are missing in the file, and writes the table."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [case for case in CASES if wanted in case.name]
    if not chosen:
        sys.exit(f"no case has {wanted!r} in its name; there are: {'; '.join(case.name for case in CASES)}")
    for side in ("maxtext", "ours"):
        for case in chosen:
            if (case.name, side) in read_records():
                continue
            print(f"{case.name}: {side}", flush=True)
            figures = measured(commands(case)[side], case)
            with RECORDS.open("a") as file:
                file.write(json.dumps({"case": case.name, "side": side} | asdict(figures)) + "\n")
            write_table()


if __name__ == "__main__":
    main()
