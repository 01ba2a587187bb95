"""Process start to first new step, with compiled programs kept and without, by the trainer's own report.

Three attempts of one run: a first one, which fills the compile cache; a restart with it; a restart without. Run it from
the repository's root: `make bench-restart`.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa
import pyarrow.parquet as pq

from tests.multiprocess import processes

PHASES = ("starting", "restoring", "compiling")
ENDLESS = 1_000_000


def attempt(folder: Path, number: int, config: dict[str, Any], extra: dict[str, str], options: Any) -> dict[str, float]:
    """Seconds until the first step of an attempt, and in which phase."""
    began = time.monotonic()
    with processes.start(
        folder / f"attempt-{number}",
        processes=options.processes,
        devices=options.devices,
        config=config,
        checkpoint_dir=folder / "checkpoints",
        attempt=number,
        startup_seconds=120,
        extra=extra,
    ) as run:
        report = run.wait_for_report("a step", lambda report: report["attempt_steps"] >= 1, limit_seconds=500)
        total = time.monotonic() - began
        found = {phase: report["seconds"].get(phase, 0.0) for phase in PHASES}
        run.wait_for_report("some steps", lambda report: report["attempt_steps"] >= 3, limit_seconds=500)
        for member in run.members:
            processes.kill(member, signal.SIGTERM)
        codes = run.wait(limit_seconds=200)
        if codes != [75] * options.processes:
            raise SystemExit(run.explain())
    return found | {"total": total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(pa.table({"text": ["It was a dark and stormy night. " * 40] * 64}), folder / "text.parquet")
        config = {
            "model": {"layers": options.layers, "embedDim": 256, "heads": 4},
            "data": {"path": str(folder / "text.parquet")},
            "steps": ENDLESS,
            "sequenceLength": 128,
            "batchSize": 8,
            "logEverySteps": 1,
        }
        # As in a pod: optimised programs, no cache of JAX's own.
        plain = {"JAX_COMPILATION_CACHE_DIR": "", "XLA_FLAGS": "", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        rows = [
            ("first start, cache empty", attempt(folder, 0, config, plain, options)),
            ("restart, with the cache", attempt(folder, 1, config, plain, options)),
            ("restart, without", attempt(folder, 2, config | {"compileCache": False}, plain, options)),
        ]
    print(f"{options.processes} processes of {options.devices} CPU devices, {options.layers} layers; seconds")
    print(f"| {'':26} | " + " | ".join(PHASES) + " | first step | process start to first step |")
    print("|---" * (len(PHASES) + 3) + "|")
    for what, found in rows:
        rest = found["total"] - sum(found[phase] for phase in PHASES)
        cells = [f"{found[phase]:.1f}" for phase in PHASES] + [f"{rest:.1f}", f"{found['total']:.1f}"]
        print(f"| {what:26} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
