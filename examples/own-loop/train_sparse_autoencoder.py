"""A sparse autoencoder of one layer's activations, from the files that `task: extract` wrote.

    python3 train_sparse_autoencoder.py DIRECTORY COLUMN     # such as gs://my-bucket/features layer_15_residual

One process. Over several, give each a part of the files: `read_activations(…, part=(job.process_id, job.processes))`.
"""

import itertools
import os
import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tpujob_sdk import read_activations

STEPS = int(os.environ.get("STEPS", "500"))
BATCH_SIZE, FEATURES_PER_DIMENSION, SPARSITY = 256, 8, 1e-2

type Weights = dict[str, jax.Array]


def batches(directory: str, column: str) -> Iterator[np.ndarray]:
    """Vectors `[BATCH_SIZE, D]` of all tokens in the order of the corpus, again and again."""
    held: list[np.ndarray] = []
    for _ in itertools.count():
        for row in read_activations(directory, [column]):
            held.append(np.atleast_2d(row.values[column]).astype(np.float32))
            while sum(map(len, held)) >= BATCH_SIZE:
                whole = np.concatenate(held)
                yield whole[:BATCH_SIZE]
                held = [whole[BATCH_SIZE:]]


def new_weights(width: int) -> Weights:
    """Encoder and decoder begin as each other's transpose."""
    directions = jax.random.normal(jax.random.key(0), (FEATURES_PER_DIMENSION * width, width))
    directions /= jnp.linalg.norm(directions, axis=-1, keepdims=True)
    return {
        "encoder": directions.T,
        "encoder_bias": jnp.zeros(len(directions)),
        "decoder": directions,
        "decoder_bias": jnp.zeros(width),
    }


def loss_of(weights: Weights, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The squared error of a vector, with a price for each active feature; and the error alone."""
    active = jax.nn.relu((x - weights["decoder_bias"]) @ weights["encoder"] + weights["encoder_bias"])
    restored = active @ weights["decoder"] + weights["decoder_bias"]
    norms = jnp.linalg.norm(weights["decoder"], axis=-1)
    error = jnp.mean(jnp.sum((restored - x) ** 2, axis=-1))
    return error + SPARSITY * jnp.mean(active @ norms), error


def main(directory: str, column: str) -> None:
    """Trains, and says from time to time which share of the variance is not explained."""
    vectors = batches(directory, column)
    first = next(vectors)
    mean, spread = first.mean(axis=0), first.std() + 1e-6
    weights, optimizer = new_weights(first.shape[1]), optax.adam(1e-3)

    @jax.jit
    def step_of(weights: Weights, state: optax.OptState, x: jax.Array) -> tuple[Weights, optax.OptState, jax.Array]:
        (_, error), gradient = jax.value_and_grad(loss_of, has_aux=True)(weights, x)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(weights, updates), state, error / jnp.sum(jnp.var(x, axis=0))

    state = optimizer.init(weights)
    for step in range(1, STEPS + 1):
        x = (next(vectors) - mean) / spread
        weights, state, unexplained = step_of(weights, state, x)
        if step % 100 == 0 or step == 1:
            print(f"step {step}: {float(unexplained):.4f} of the variance is unexplained", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
