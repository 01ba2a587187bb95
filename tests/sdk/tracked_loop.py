"""A loop that feeds all trackers: to STEPS, from the newest checkpoint."""

import os

import numpy as np

from tpujob_sdk import Job, run


def train(job: Job) -> None:
    checkpoints = job.checkpoints()
    state = job.replicate({"w": np.zeros(8, np.float32)})
    step, state = checkpoints.restore(state) or (0, state)
    trackers = job.trackers(
        first_step=step, config={"width": 8}, wandb={"project": "tests", "name": "own"}, tensorboard={}
    )
    while step < int(os.environ["STEPS"]) and not job.stop_requested():
        step += 1
        job.report(step=step, loss=1 / step)
        trackers.scalars(step, {"train/loss": 1 / step, "attempt": int(os.environ["ATTEMPT"])})
    trackers.text(step, "a", f"a text of step {step}")
    checkpoints.save(step, state)
    if os.environ.get("AGAIN"):
        job.trackers()


run(train)
