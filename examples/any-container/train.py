"""A plain JAX script: data-parallel linear regression over all hosts of all slices. It knows nothing of tpujob.

Its place among the others is what the job's launcher has put into the environment, where `initialize` finds it.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

ROWS_PER_DEVICE, FEATURES, STEPS, LEARNING_RATE = 64, 8, 50, 0.1

jax.distributed.initialize()

mesh = jax.make_mesh((jax.device_count(),), ("data",))
rows = NamedSharding(mesh, PartitionSpec("data"))
generator = np.random.default_rng(seed=jax.process_index())
truth = np.arange(FEATURES, dtype=np.float32)
inputs = generator.normal(size=(ROWS_PER_DEVICE * jax.local_device_count(), FEATURES)).astype(np.float32)
x = jax.make_array_from_process_local_data(rows, inputs)
y = jax.make_array_from_process_local_data(rows, inputs @ truth)


@jax.jit
def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One step of gradient descent on the rows of all hosts."""
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
    return weights - LEARNING_RATE * gradient, loss


weights = jax.device_put(np.zeros(FEATURES, np.float32), NamedSharding(mesh, PartitionSpec()))
for _ in range(STEPS):
    weights, loss = step(weights, x, y)

result = {
    "process": jax.process_index(),
    "processes": jax.process_count(),
    "devices": jax.device_count(),
    "loss": float(loss),
    "weights": [round(float(weight), 3) for weight in weights],
}
sys.stdout.write(json.dumps(result) + "\n")
