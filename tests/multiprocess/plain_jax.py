"""A training loop of a person's own, in plain JAX: two processes that meet in each step, and one fault in one of them.

Environment: FAULT, FAULT_PROCESS, FAULT_MARK as in `faulty_trainer`.
"""

import os

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

from tests.multiprocess.plain_loop import loop


def main() -> None:
    """Steps until the fault, and a little longer after it."""
    process = int(os.environ["JAX_PROCESS_ID"])
    jax.distributed.initialize(num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=process)
    loop(process, lambda step: multihost_utils.process_allgather(jnp.ones(4) * step))


if __name__ == "__main__":
    main()
