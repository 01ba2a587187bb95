"""The same loop with flax and optax: a small network over bytes, its optimizer state in the checkpoint as well."""

import functools
import os
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tpujob_sdk import Batch, Job, run

TEXT = os.environ.get("TEXT", "text/*.parquet")
STEPS = int(os.environ.get("STEPS", "100"))
BATCH_SIZE, SEQUENCE_LENGTH, VOCABULARY, WIDTH = 8, 64, 512, 32
OPTIMIZER = optax.adamw(1e-2)

type State = dict[str, Any]


class Network(nnx.Module):
    """Logits of the next byte from the one before."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.hidden = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.output = nnx.Linear(WIDTH, VOCABULARY, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        return self.output(jax.nn.gelu(self.hidden(self.embed(tokens))))


def loss_of(weights: Any, graph: Any, batch: Batch) -> jax.Array:
    """Mean cross-entropy over what is learned."""
    losses = optax.softmax_cross_entropy_with_integer_labels(nnx.merge(graph, weights)(batch.inputs), batch.targets)
    return jnp.sum(losses * batch.loss_mask) / jnp.sum(batch.loss_mask)


@functools.partial(jax.jit, static_argnames="graph")
def train_step(state: State, graph: Any, batch: Batch) -> tuple[State, jax.Array]:
    """One step of AdamW over the rows of all hosts."""
    loss, gradient = jax.value_and_grad(loss_of)(state["weights"], graph, batch)
    updates, optimizer = OPTIMIZER.update(gradient, state["optimizer"], state["weights"])
    return {"weights": optax.apply_updates(state["weights"], updates), "optimizer": optimizer}, loss


def train(job: Job) -> None:
    """What every process does."""
    batches = job.lanes({"path": TEXT, "tokenizer": "bytes"}, batch_size=BATCH_SIZE, sequence_length=SEQUENCE_LENGTH)
    checkpoints = job.checkpoints(batches)
    # Here and not above: JAX is started by `run`.
    graph, weights = nnx.split(Network(nnx.Rngs(0)))
    state = job.replicate({"weights": weights, "optimizer": OPTIMIZER.init(weights)})
    step, state = checkpoints.restore(state) or (0, state)
    while step < STEPS and not job.stop_requested():
        state, loss = train_step(state, graph, next(batches))
        step += 1
        job.report(step=step, steps=STEPS, loss=loss, tokens=BATCH_SIZE * SEQUENCE_LENGTH)
        if step % 10 == 0:
            checkpoints.save(step, state)
    checkpoints.save(step, state)


if __name__ == "__main__":
    run(train)
