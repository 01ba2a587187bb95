"""A training loop of your own in plain JAX: a bigram model of bytes over all hosts.

It can be killed at any moment and goes on from the last checkpoint, on any number of hosts, with the same batches.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_sdk import Batch, Job, run

TEXT = os.environ.get("TEXT", "text/*.parquet")
STEPS = int(os.environ.get("STEPS", "100"))
BATCH_SIZE, SEQUENCE_LENGTH, VOCABULARY, LEARNING_RATE = 8, 64, 512, 0.5


def loss_of(logits: jax.Array, batch: Batch) -> jax.Array:
    """Mean cross-entropy of each byte, given the one before."""
    log_probabilities = jax.nn.log_softmax(logits[batch.inputs])
    of_targets = jnp.take_along_axis(log_probabilities, batch.targets[..., None], axis=-1)[..., 0]
    return -jnp.sum(of_targets * batch.loss_mask) / jnp.sum(batch.loss_mask)


@jax.jit
def train_step(logits: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array]:
    """One step of gradient descent over the rows of all hosts."""
    loss, gradient = jax.value_and_grad(loss_of)(logits, batch)
    return logits - LEARNING_RATE * gradient, loss


def train(job: Job) -> None:
    """What every process does."""
    batches = job.lanes({"path": TEXT, "tokenizer": "bytes"}, batch_size=BATCH_SIZE, sequence_length=SEQUENCE_LENGTH)
    checkpoints = job.checkpoints(batches)
    logits = job.replicate(np.zeros((VOCABULARY, VOCABULARY), np.float32))
    step, logits = checkpoints.restore(logits) or (0, logits)
    while step < STEPS and not job.stop_requested():
        logits, loss = train_step(logits, next(batches))
        step += 1
        job.report(step=step, steps=STEPS, loss=loss, tokens=BATCH_SIZE * SEQUENCE_LENGTH)
        if job.is_lead and step % 10 == 0:
            print(f"step {step}: loss {float(loss):.4f}", flush=True)
        if step % 10 == 0:
            checkpoints.save(step, logits)
    checkpoints.save(step, logits)


if __name__ == "__main__":
    run(train)
