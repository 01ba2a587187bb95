"""The same loop with flax, optax and FSDP: weights and optimizer state are divided over all devices of all hosts."""

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


def train_step(graph: Any, state: State, batch: Batch) -> tuple[State, jax.Array]:
    """One step of AdamW over the rows of all hosts."""
    loss, gradient = jax.value_and_grad(loss_of)(state["weights"], graph, batch)
    updates, optimizer = OPTIMIZER.update(gradient, state["optimizer"], state["weights"])
    return {"weights": optax.apply_updates(state["weights"], updates), "optimizer": optimizer}, loss


def initial_state() -> State:
    """Weights and what the optimizer keeps of them."""
    _, weights = nnx.split(Network(nnx.Rngs(0)))
    return {"weights": weights, "optimizer": OPTIMIZER.init(weights)}


def train(job: Job) -> None:
    """What every process does."""
    batches = job.lanes({"path": TEXT, "tokenizer": "bytes"}, batch_size=BATCH_SIZE, sequence_length=SEQUENCE_LENGTH)
    checkpoints = job.checkpoints(batches)
    # Here and not above: JAX is started by `run`. The state is made in its parts, and is nowhere whole.
    graph, _ = nnx.split(nnx.eval_shape(lambda: Network(nnx.Rngs(0))))
    shardings = job.shardings(jax.eval_shape(initial_state))
    state = jax.jit(initial_state, out_shardings=shardings)()
    next_state = jax.jit(functools.partial(train_step, graph), out_shardings=(shardings, None), donate_argnums=0)

    step, state = checkpoints.restore(state) or (0, state)
    trackers = job.trackers(first_step=step, config={"width": WIDTH, "batchSize": BATCH_SIZE})
    while step < STEPS and not job.stop_requested():
        state, loss = next_state(state, next(batches))
        step += 1
        job.report(step=step, steps=STEPS, loss=loss, tokens=BATCH_SIZE * SEQUENCE_LENGTH)
        if step % 10 == 0:
            trackers.scalars(step, {"train/loss": float(loss)})
            checkpoints.save(step, state)
    checkpoints.save(step, state)


if __name__ == "__main__":
    run(train)
