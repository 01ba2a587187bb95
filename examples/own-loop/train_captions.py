"""The same loop over images with captions: webdataset tars, and a model that writes a caption byte by byte."""

import functools
import io
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from tpujob_sdk import Job, Sample, run

IMAGES = os.environ.get("IMAGES", "captions/*.tar")
STEPS = int(os.environ.get("STEPS", "100"))
BATCH_SIZE, SIDE, WIDTH, LENGTH = 8, 8, 32, 16
START = 256  # before the first byte; 0 is after the last one
OPTIMIZER = optax.adamw(1e-2)


def decode(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Pixels from 0 to 1, float32 [SIDE, SIDE], and the caption's bytes, int32 [LENGTH], with 0 behind them."""
    pixels = np.load(io.BytesIO(sample.fields["npy"]), allow_pickle=False)
    caption = np.frombuffer(sample.fields["txt"][:LENGTH], np.uint8)
    return pixels.astype(np.float32) / 255, np.pad(caption, (0, LENGTH - len(caption))).astype(np.int32)


class Captioner(nnx.Module):
    """Logits of the next byte, from the image, the place, and the byte before."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.image = nnx.Linear(SIDE * SIDE, LENGTH * WIDTH, rngs=rngs)
        self.embed = nnx.Embed(START + 1, WIDTH, rngs=rngs)
        self.output = nnx.Linear(WIDTH, START, rngs=rngs)

    def __call__(self, pixels: jax.Array, before: jax.Array) -> jax.Array:
        seen = self.image(pixels.reshape(len(pixels), -1)).reshape(len(pixels), LENGTH, WIDTH)
        return self.output(jax.nn.gelu(seen + self.embed(before)))


def loss_of(weights: Any, graph: Any, pixels: jax.Array, captions: jax.Array) -> jax.Array:
    """Mean cross-entropy of all bytes, the end included."""
    before = jnp.pad(captions[:, :-1], ((0, 0), (1, 0)), constant_values=START)
    logits = nnx.merge(graph, weights)(pixels, before)
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, captions))


def train_step(graph: Any, state: Any, pixels: jax.Array, captions: jax.Array) -> tuple[Any, jax.Array]:
    """One step of AdamW over the images of all hosts."""
    weights, optimizer = state
    loss, gradient = jax.value_and_grad(loss_of)(weights, graph, pixels, captions)
    updates, optimizer = OPTIMIZER.update(gradient, optimizer, weights)
    return (optax.apply_updates(weights, updates), optimizer), loss


def train(job: Job) -> None:
    """What every process does."""
    samples = job.samples(IMAGES, batch_size=BATCH_SIZE).map(decode, workers=2)
    checkpoints = job.checkpoints(samples)
    graph, weights = nnx.split(Captioner(nnx.Rngs(0)))
    state = job.shard((weights, OPTIMIZER.init(weights)))
    next_state = jax.jit(functools.partial(train_step, graph), donate_argnums=0)
    step, state = checkpoints.restore(state) or (0, state)
    while step < STEPS and not job.stop_requested():
        pixels, captions = (samples.array(np.stack(part)) for part in zip(*next(samples), strict=True))
        state, loss = next_state(state, pixels, captions)
        step += 1
        job.report(step=step, steps=STEPS, loss=loss)
        if job.is_lead:
            print(f"step {step}: loss {float(loss):.4f}", flush=True)
        if step % 10 == 0:
            checkpoints.save(step, state)
    checkpoints.save(step, state)


if __name__ == "__main__":
    run(train)
