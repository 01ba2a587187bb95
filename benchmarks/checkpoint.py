"""What checkpoints cost: steps with saves against steps without, fingerprints, and a restore in its parts.

One process, one device, a folder on this machine's disk, or with `--bucket` an emulator of Google Cloud Storage beside
it, which takes its part of the same processors. The step is that of a stack of matrices with AdamW: the same arithmetic
for each parameter and token as a decoder's. A thousand tokens a step are few for a run of this size: saves come sooner
here than in training. Steps with saves and without take turns, since machines change their pace.
"""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.multiprocess.bucket import emulated_bucket
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.checkpoint.listener import Listener
from tpujob_trainer.checkpoint.retention import Retention
from tpujob_trainer.checkpoint.settings import Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime

WIDTH = 1024
LIMIT_SECONDS = 300.0
Tree = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parameters", type=int, default=25, help="in millions")
    parser.add_argument("--tokens", type=int, default=1024, help="of a step")
    parser.add_argument("--rounds", type=int, default=2, help="each with one save, and as many steps without")
    parser.add_argument("--every", type=int, default=50, help="steps between two saves")
    parser.add_argument("--bucket", action="store_true", help="on gs://, of an emulator on this machine")
    options = parser.parse_args()

    optimizer = optax.adamw(1e-4)
    tree = made(options.parameters * 1_000_000 // WIDTH**2, optimizer)
    step = compiled_step(optimizer, tree, options.tokens)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
    with bucket() if options.bucket else tempfile.TemporaryDirectory(prefix="tpujob-checkpoints-") as directory:
        blocking: list[float] = []
        commits: list[float] = []
        checkpoints = opened(directory, blocking, commits)
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)
        checkpoints.restore(abstract)
        # Compiles the fingerprints, and warms the page cache and the step.
        tree = train(step, tree, steps=2, save=lambda at, state: at == 1 and checkpoints.save(1, state))[0]
        checkpoints.finish(LIMIT_SECONDS)
        blocking.clear()
        commits.clear()

        without: list[float] = []
        with_saves: list[float] = []
        cpu_without, cpu_with = 0.0, 0.0
        for round_ in range(options.rounds):

            def save(at: int, state: Tree, first: int = 2 + round_ * options.every) -> None:
                checkpoints.poll()
                if at == 0:
                    checkpoints.save(first, state)

            began = time.process_time()
            tree, seconds = train(step, tree, steps=options.every, save=lambda at, state: None)
            without += seconds
            cpu_without += time.process_time() - began
            began = time.process_time()
            tree, seconds = train(step, tree, steps=options.every, save=save)
            with_saves += seconds
            checkpoints.finish(LIMIT_SECONDS)
            cpu_with += time.process_time() - began
        checkpoints.close()

        fingerprint = best_of(5, lambda: Fingerprints.once(tree))
        fingerprint_cpu = best_of(5, lambda: Fingerprints.once(tree), clock=time.process_time)
        restored = opened(directory, [], [])
        restored.restore(abstract)
        restored.restore(abstract)
        parts = restored.restore_seconds
        host = jax.tree.map(np.asarray, tree)
        place = best_of(3, lambda: jax.block_until_ready(jax.device_put(host)))

    block, commit = statistics.mean(blocking), statistics.mean(commits)
    plain, saving = sum(without) / options.rounds, sum(with_saves) / options.rounds
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, {versions()}")
    where = "gs:// of an emulator" if options.bucket else "a folder"
    print(f"state: {size / 1e6:.0f} MB, {options.parameters} M parameters; a save every {options.every} steps, {where}")
    print(f"step without saves            {statistics.median(without) * 1e3:8.1f} ms (median)")
    print(f"{options.every} steps without a save       {plain:8.2f} s")
    print(f"{options.every} steps with one             {saving:8.2f} s, {saving / plain - 1:+.2%}")
    cpu = (cpu_with - cpu_without) / options.rounds
    print(f"  CPU time                    {cpu * 1e3:8.1f} ms for a save, {cpu_with / cpu_without - 1:+.2%}")
    print(f"a save keeps the loop waiting {block * 1e3:8.1f} ms, {block / plain:.2%} of {options.every} steps")
    print(f"a save until its commit       {commit * 1e3:8.1f} ms, {size / commit / 1e6:.0f} MB/s")
    print(f"fingerprints of the state     {fingerprint * 1e3:8.1f} ms, {size / fingerprint / 1e9:.1f} GB/s")
    print(f"  CPU time                    {fingerprint_cpu * 1e3:8.1f} ms, {size / fingerprint_cpu / 1e9:.1f} GB/s")
    print(f"  of a save until its commit  {fingerprint / commit:8.2%}")
    print(f"restore                       {(parts.read + parts.verify) * 1e3:8.1f} ms")
    print(f"  read                        {(parts.read - place) * 1e3:8.1f} ms")
    print(f"  place on the device         {place * 1e3:8.1f} ms (a copy of the same arrays from host memory)")
    print(f"  verify                      {parts.verify * 1e3:8.1f} ms")


@contextlib.contextmanager
def bucket() -> Iterator[str]:
    """Starts a storage emulator, which keeps all objects in memory; yields a folder in a bucket of it."""
    with tempfile.TemporaryDirectory() as logs, emulated_bucket("benchmark", Path(logs)) as found:
        os.environ.update(found.environment)
        yield f"gs://{found.name}/run"


class Fingerprints:
    """One fingerprinter, compiled once."""

    _fingerprinter = Fingerprinter()

    @classmethod
    def once(cls, tree: Tree) -> None:
        cls._fingerprinter(tree)


def made(layers: int, optimizer: optax.GradientTransformation) -> Tree:
    """A state of weights and moments, in float32."""
    keys = jax.random.split(jax.random.key(0), layers)
    weights = {f"{i:02d}": jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5 for i, key in enumerate(keys)}
    return {"weights": weights, "optimizer": optimizer.init(weights)}


def compiled_step(optimizer: optax.GradientTransformation, tree: Tree, tokens: int) -> Callable[[Tree], Tree]:
    x = jax.random.normal(jax.random.key(1), (tokens, WIDTH))

    def loss(weights: Any) -> jax.Array:
        y = x
        for weight in jax.tree.leaves(weights):
            y = y + jax.nn.gelu(y @ weight) / len(weights)
        return jnp.mean(y**2)

    def step(state: Tree) -> Tree:
        gradients = jax.grad(loss)(state["weights"])
        updates, moments = optimizer.update(gradients, state["optimizer"], state["weights"])
        return {"weights": optax.apply_updates(state["weights"], updates), "optimizer": moments}

    compiled: Callable[[Tree], Tree] = jax.jit(step, donate_argnums=0).lower(tree).compile()
    return compiled


def train(
    step: Callable[[Tree], Tree], tree: Tree, *, steps: int, save: Callable[[int, Tree], Any]
) -> tuple[Tree, list[float]]:
    """Trains; returns the last state, and the seconds of each step, including those that a save adds."""
    seconds = []
    for at in range(steps):
        began = time.perf_counter()
        save(at, tree)
        tree = jax.block_until_ready(step(tree))
        seconds.append(time.perf_counter() - began)
    return tree, seconds


def opened(directory: str, blocking: list[float], commits: list[float]) -> Checkpoints:
    return Checkpoints(
        directory,
        Settings(retention=Retention(last=2)),
        Runtime(0, 1, f"0.0-{time.monotonic_ns()}", "here", kv_store.alone()),
        listener=Listener(
            saved=lambda step, seconds: blocking.append(seconds),
            committed=lambda commit, seconds: commits.append(seconds),
        ),
    )


def best_of(times: int, action: Callable[[], object], *, clock: Callable[[], float] = time.perf_counter) -> float:
    """The least seconds of several calls of an action, after one that does not count."""
    action()
    found = []
    for _ in range(times):
        began = clock()
        action()
        found.append(clock() - began)
    return min(found)


def versions() -> str:
    names = ("jax", "orbax-checkpoint", "tensorstore")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


if __name__ == "__main__":
    main()
