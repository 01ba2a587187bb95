"""A plain Ray program: linear regression in JAX over all hosts, one actor on each. It knows nothing of tpujob.

This driver runs on the first host, beside Ray's head. It calls the actors step by step, saves to TPUJOB_CHECKPOINT_DIR,
and starts from there: a folder of the first host is not enough for a job in a cluster, a volume is.
"""

import json
import os
import signal
import sys
from pathlib import Path

import ray

STEPS, SAVE_EVERY, ROWS, FEATURES, LEARNING_RATE = int(os.environ.get("STEPS", "50")), 10, 64, 8, 0.02
EXIT_CODE_STOPPED = 75
asked_to_stop = False


def request_stop(*_: object) -> None:
    """Remembers the request; the loop leaves after its step."""
    global asked_to_stop
    asked_to_stop = True


@ray.remote(resources={"host": 1})
class Host:
    """The JAX process of one host. JAX is imported here alone: the driver must not take the first host's chips."""

    def __init__(self, weights: list[float]) -> None:
        """Meets the other hosts; Ray hands its own environment on, and with it this host's place among them."""
        import jax
        import jax.numpy as jnp
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        jax.distributed.initialize(
            coordinator_address=os.environ["JAX_COORDINATOR_ADDRESS"],
            num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
            process_id=int(os.environ["JAX_PROCESS_ID"]),
            cluster_detection_method="deactivate",
        )
        mesh = jax.make_mesh((jax.device_count(),), ("data",))
        self.rows = NamedSharding(mesh, PartitionSpec("data"))
        self.weights = jax.device_put(np.asarray(weights, np.float32), NamedSharding(mesh, PartitionSpec()))

        @jax.jit
        def update(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
            loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
            return weights - LEARNING_RATE * gradient, loss

        self.update = update

    def step(self, number: int) -> tuple[float, bool]:
        """Makes one step; its loss, and whether this host is asked to stop."""
        import jax
        import numpy as np

        # Rows follow from step and process alone, so that a resumed run sees the same ones.
        generator = np.random.default_rng((number, jax.process_index()))
        inputs = generator.normal(size=(ROWS * jax.local_device_count(), FEATURES)).astype(np.float32)
        x = jax.make_array_from_process_local_data(self.rows, inputs)
        y = jax.make_array_from_process_local_data(self.rows, inputs @ np.arange(FEATURES, dtype=np.float32))
        self.weights, loss = self.update(self.weights, x, y)
        return float(loss), Path(os.environ["STOP_FILE"]).exists()

    def state(self) -> list[float]:
        """The weights, which are the same on all hosts."""
        return [float(weight) for weight in self.weights]


directory = Path(os.environ["TPUJOB_CHECKPOINT_DIR"])
directory.mkdir(parents=True, exist_ok=True)
checkpoint = directory / "newest.json"
saved = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "weights": [0.0] * FEATURES}

ray.init(log_to_driver=False)
signal.signal(signal.SIGTERM, request_stop)  # after Ray has set a handler, which leaves at once
hosts = [Host.remote(saved["weights"]) for _ in range(int(os.environ["JAX_NUM_PROCESSES"]))]
ray.get([host.__ray_ready__.remote() for host in hosts], timeout=int(os.environ["TPUJOB_STARTUP_SECONDS"]))

for step in range(saved["step"], STEPS):
    results = ray.get([host.step.remote(step) for host in hosts])
    leaves = asked_to_stop or any(is_asked for _, is_asked in results)
    if leaves or (step + 1) % SAVE_EVERY == 0:
        partial = checkpoint.with_suffix(".partial")
        partial.write_text(json.dumps({"step": step + 1, "weights": ray.get(hosts[0].state.remote())}))
        partial.replace(checkpoint)
    print(json.dumps({"step": step + 1, "loss": results[0][0], "hosts": len(hosts), "from": saved["step"]}), flush=True)
    if leaves:
        sys.exit(EXIT_CODE_STOPPED)
