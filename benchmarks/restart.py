"""Process start to first new step, with compiled programs kept and without, by the trainer's own report.

    python -m benchmarks.restart

Three attempts of one run: a first one, which fills the compile cache; a restart with it; a restart without.
"""

import signal
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import cpu_seconds, parser, say, show, table
from tests.harness import processes

PHASES = ("starting", "restoring", "compiling")
ENDLESS = 1_000_000


def attempt(folder: Path, number: int, config: dict[str, Any], extra: dict[str, str], options: Any) -> dict[str, float]:
    """The seconds until the first step of an attempt, in total and by phase, its CPU time, and its cache hits."""
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
        cpu, hits = cpu_seconds(run[0].pid), cache_hits(run[0].report_port)
        found = {phase: report["seconds"].get(phase, 0.0) for phase in PHASES}
        run.wait_for_report("a commit", lambda report: report["committed_step"] is not None, limit_seconds=500)
        for member in run.members:
            processes.kill(member, signal.SIGTERM)
        codes = run.wait(limit_seconds=200)
        if codes != [75] * options.processes:
            raise SystemExit(run.explain())
    return found | {"total": total, "cpu": cpu, "hits": hits}


def cache_hits(port: int) -> float:
    """The number of programs that a process found in the compile cache, from its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("tpujob_compile_cache_hits_total "))


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--processes", type=int, default=1)
    arguments.add_argument("--devices", type=int, default=1)
    arguments.add_argument("--layers", type=int, default=4)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pq.write_table(pa.table({"text": ["It was a dark and stormy night. " * 40] * 64}), folder / "text.parquet")
        config = {
            "model": {"layers": options.layers, "embedDim": 256, "heads": 4},
            "data": {"path": str(folder / "text.parquet")},
            "steps": ENDLESS,
            "sequenceLength": 128,
            "batchSize": 8,
            "checkpoint": {"everySteps": 1},
            "logEverySteps": 1,
        }
        # As in a pod: optimised programs, no cache of JAX's own, no pause before a batch.
        plain = dict.fromkeys(("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS", "PYTHONPATH"), "")
        plain["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        attempts = {
            "first start, cache empty": attempt(folder, 0, config, plain, options),
            "restart, with the cache": attempt(folder, 1, config, plain, options),
            "restart, without": attempt(folder, 2, config | {"compileCache": False}, plain, options),
        }
    say(f"{options.processes} processes of {options.devices} CPU devices, {options.layers} layers; seconds")
    heads = ("", *PHASES, "first step", "process start to first step", "CPU of process 0", "hits")
    show(table(heads, (row(what, found) for what, found in attempts.items())))


def row(what: str, found: dict[str, float]) -> tuple[str, ...]:
    """The cells of the table row of an attempt."""
    phases = [found[phase] for phase in PHASES]
    seconds = [*phases, found["total"] - sum(phases), found["total"], found["cpu"]]
    return (what, *(f"{each:.1f}" for each in seconds), f"{found['hits']:.0f}")


if __name__ == "__main__":
    main()
