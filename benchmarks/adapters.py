"""Time and memory of a step that trains adapters, relative to one that trains all weights, on the local device.

`make bench-adapters`: on a CPU with a small model; `SIZE=1b` for an accelerator. Each case runs in its own process, so
that its memory peak is its own; all cases run twice, in turns, and the faster round counts.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import jax

from benchmarks.common import say, show, table
from benchmarks.our_cpu_loop import random_batch
from tpujob_trainer.config.resolve import resolve
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.model.custom_model import make_model
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train.optimizer import make_optimizer, make_schedule
from tpujob_trainer.train.step import init_state, make_run_step

SMALL = {"embedDim": 512, "mlpDim": 2048, "heads": 4, "kvHeads": 4, "layers": 2, "vocabSize": 2048}
LARGE = {"embedDim": 2048, "mlpDim": 8192, "heads": 16, "kvHeads": 8, "layers": 16, "vocabSize": 32000}
SIZES: dict[str, tuple[dict[str, Any], int, int, int]] = {"small": (SMALL, 2, 512, 5), "1b": (LARGE, 8, 1024, 20)}
"""Model, rows, tokens of a row, timed steps."""
ALL = ("query", "key", "value", "out", "gate", "up", "down")
TARGETS: dict[str, tuple[Any, ...]] = {"every weight": (), "all matrices": ALL, "query and value": ("query", "value")}
REMAT = ("none", "full")
ROUNDS = 2


def step_figures(size: str, remat: str, targets: tuple[Any, ...]) -> dict[str, float | None]:
    """The median seconds of a step, and the device's memory peak in GB; None: the device does not report it."""
    model_block, rows, length, steps = SIZES[size]
    block: dict[str, Any] = {
        "model": {**model_block, "remat": remat},
        "data": {"path": "unused", "tokenizer": "unused"},
        "steps": 1000,
        "batchSize": rows,
        "sequenceLength": length,
    }
    device = jax.local_devices()[0]
    run = resolve(parse_config(block), num_devices=1, vocabulary=2, platform=device.platform)
    lora = LoraConfig(rank=16, targets=targets) if targets else None
    model = make_model(run.model, build_mesh(slices=1, shape=run.mesh, devices=[device]), lora)
    schedule = make_schedule(run.optimizer, steps=run.steps)
    optimizer = make_optimizer(run.optimizer, schedule, has_adapters=lora is not None)
    step = make_run_step(run, model, optimizer, schedule)
    state = init_state(model, optimizer, 0)
    batch = random_batch(run)
    seconds = []
    for _ in range(steps + 2):  # the first compiles, the second still fills caches
        began = time.monotonic()
        state, metrics = step(state, batch)
        float(metrics.loss)
        jax.block_until_ready(state)
        seconds.append(time.monotonic() - began)
    peak = (device.memory_stats() or {}).get("peak_bytes_in_use")
    return {"seconds": statistics.median(seconds[2:]), "peak": peak and peak / 1e9}


def main() -> None:
    """Prints the table."""
    size = sys.argv[1] if len(sys.argv) > 1 else "small"
    cases = [(remat, what) for remat in REMAT for what in TARGETS]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {case: [] for case in cases}
    for _ in range(ROUNDS):
        for case in cases:
            program = [sys.executable, "-m", "benchmarks.adapters", size, *case]
            text = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True).stdout
            found[case].append(json.loads(text.splitlines()[-1]))
    say(f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {size}")
    best = {case: min(each, key=lambda one: one["seconds"]) for case, each in found.items()}
    show(
        table(
            ("rematerialisation", "trained", "ms a step", "in parts", "peak GB"), map(row, cases, [best] * len(cases))
        )
    )


def row(case: tuple[str, str], best: Mapping[tuple[str, str], Mapping[str, Any]]) -> tuple[str, ...]:
    """The cells of the table row of a case."""
    seconds, peak, full = best[case]["seconds"], best[case]["peak"], best[case[0], "every weight"]["seconds"]
    return (*case, f"{seconds * 1000:.1f}", f"{seconds / full:.2f}", f"{peak:.2f}" if peak else "not told")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(step_figures(sys.argv[1], sys.argv[2], TARGETS[sys.argv[3]])))
    else:
        main()
