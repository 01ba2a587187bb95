"""The training programs: tiny, so that restarts cost the minimum, with frequent saves, so that few steps repeat."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ENDLESS = 1_000_000
STEP_LINES = {
    "trainer": re.compile(r"Step (\d+) of \d+: "),
    "plain JAX": re.compile(r"\bstep (\d+)\b"),
    "MaxText": re.compile(r"completed step: (\d+),"),
}
"""The lines of process 0's log about finished steps, by program."""
MAXTEXT = {"steps": ENDLESS, "period": 100}
"""The number of steps, and the steps between checkpoints."""

PLAIN_JAX = """
import os, pathlib, time
import jax, jax.numpy as jnp
from jax.experimental import multihost_utils
process = int(os.environ["JAX_PROCESS_ID"])
jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=process)
saved = pathlib.Path(os.environ["SAVED"]) / "step"
step = int(multihost_utils.broadcast_one_to_all(int(saved.read_text()) if saved.exists() else 0))
while True:
    multihost_utils.process_allgather(jnp.ones(4) * step)
    step += 1
    if process == 0:
        saved.with_suffix(".new").write_text(str(step))
        saved.with_suffix(".new").replace(saved)
        print("step", step, flush=True)
    time.sleep(0.1)
"""
"""A typical user's loop: every process takes part in each step, and process 0 saves the step number."""


def trainer(data: str) -> dict[str, Any]:
    """The `trainer` block of the job; it saves every second."""
    return {
        "model": {"layers": 1, "embedDim": 32, "heads": 2},
        "data": {"path": data, "tokenizer": "bytes"},
        "sequenceLength": 32,
        "batchSize": 16,
        "steps": ENDLESS,
        "logEverySteps": 1,
        "checkpoint": {"everySeconds": 1, "keep": 2},
    }
