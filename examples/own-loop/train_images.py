"""The same loop over images: webdataset tars whose samples two processes decode, here arrays of NumPy with a class.

With Pillow in your image, a JPEG is `np.asarray(PIL.Image.open(io.BytesIO(sample.fields["jpg"])).convert("RGB"))`.
"""

import io
import os

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_sdk import Job, Sample, run

IMAGES = os.environ.get("IMAGES", "images/*.tar")
STEPS = int(os.environ.get("STEPS", "100"))
BATCH_SIZE, SIDE, CLASSES, LEARNING_RATE = 8, 8, 4, 0.1


def decode(sample: Sample) -> tuple[np.ndarray, int]:
    """Pixels from 0 to 1, float32 [SIDE, SIDE], and the class."""
    pixels = np.load(io.BytesIO(sample.fields["npy"]), allow_pickle=False)
    return pixels.astype(np.float32) / 255, int(sample.fields["cls"])


def loss_of(weights: jax.Array, pixels: jax.Array, classes: jax.Array) -> jax.Array:
    """Mean cross-entropy of the classes."""
    log_probabilities = jax.nn.log_softmax(pixels.reshape(len(pixels), -1) @ weights)
    return -jnp.mean(jnp.take_along_axis(log_probabilities, classes[:, None], axis=-1))


@jax.jit
def train_step(weights: jax.Array, pixels: jax.Array, classes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One step of gradient descent over the images of all hosts."""
    loss, gradient = jax.value_and_grad(loss_of)(weights, pixels, classes)
    return weights - LEARNING_RATE * gradient, loss


def train(job: Job) -> None:
    """What every process does."""
    samples = job.samples(IMAGES, batch_size=BATCH_SIZE).map(decode, workers=2)
    checkpoints = job.checkpoints(samples)
    weights = job.replicate(np.zeros((SIDE * SIDE, CLASSES), np.float32))
    step, weights = checkpoints.restore(weights) or (0, weights)
    while step < STEPS and not job.stop_requested():
        pixels, classes = zip(*next(samples), strict=True)
        weights, loss = train_step(weights, samples.array(np.stack(pixels)), samples.array(np.array(classes)))
        step += 1
        job.report(step=step, steps=STEPS, loss=loss)
        if job.is_lead:
            print(f"step {step}: loss {float(loss):.4f}", flush=True)
        if step % 10 == 0:
            checkpoints.save(step, weights)
    checkpoints.save(step, weights)


if __name__ == "__main__":
    run(train)
