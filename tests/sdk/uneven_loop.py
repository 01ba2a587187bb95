"""A loop in which process 0 alone makes a call that all processes have to make: the one that CALL names."""

import os

import jax
import numpy as np

from tpujob_sdk import Job, run


def train(job: Job) -> None:
    checkpoints = job.checkpoints()
    state = job.replicate({"w": np.ones(8, np.float32)})
    calls = {
        "save": lambda: checkpoints.save(5, state),
        "restore": lambda: checkpoints.restore(state),
        "finish": checkpoints.finish,
        "lanes": lambda: job.lanes(os.environ["TEXT"], batch_size=2, sequence_length=8),
    }
    double = jax.jit(lambda tree: jax.tree.map(lambda x: x + jax.numpy.ones(()), tree))
    for step in range(1, 10_000):
        if job.stop_requested():
            break
        state = double(state)
        job.report(step=step, loss=state["w"].sum())
        if job.is_lead and step == 5:
            calls[os.environ["CALL"]]()


run(train)
