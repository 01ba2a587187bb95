"""A training loop of a person's own, in plain JAX: two processes that meet in each step, and one fault in one of them.

Environment: FAULT, FAULT_PROCESS, FAULT_MARK as in `faulty_trainer`.
"""

import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

from tests.multiprocess.faulty_trainer import FAULTS

STEP = 3


def main() -> None:
    """Steps until the fault, and for ever without one."""
    process = int(os.environ["JAX_PROCESS_ID"])
    jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=process)
    step = 0
    while True:
        multihost_utils.process_allgather(jnp.ones(4) * step)
        print("step", step, flush=True)  # noqa: T201 - a program of a person
        if step == STEP and str(process) == os.environ["FAULT_PROCESS"]:
            Path(os.environ["FAULT_MARK"]).touch()
            FAULTS[os.environ["FAULT"]]()
        time.sleep(0.05)
        step += 1


if __name__ == "__main__":
    main()
