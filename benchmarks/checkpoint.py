"""What checkpoints cost: steps with saves against steps without, fingerprints, and a restore in its parts.

One process, one device, a folder on this machine's disk, or with `--bucket` an emulator of Google Cloud Storage beside
it, which takes its part of the same processors. The step is that of a stack of matrices with AdamW: the same arithmetic
for each parameter and token as a decoder's. A thousand tokens a step are few for a run of this size: saves come sooner
here than in training. Steps with saves and without take turns, since machines change their pace.
"""

import contextlib
import os
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

from benchmarks.common import in_turns, parser, say, show, surroundings
from tests.multiprocess.bucket import emulated_bucket
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.checkpoint.retention import Listener, Retention, Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime

WIDTH = 1024
LIMIT_SECONDS = 300.0
Tree = dict[str, Any]


class Run:
    """A state in training, with its checkpoints in a directory."""

    def __init__(self, directory: str, parameters: int, tokens: int) -> None:
        """Compiles the step and the fingerprints, and warms the page cache by a save."""
        optimizer = optax.adamw(1e-4)
        self._tree = made(parameters // WIDTH**2, optimizer)
        self._step = compiled_step(optimizer, self._tree, tokens)
        self.fingerprinter = Fingerprinter()
        self.bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(self._tree))
        self.abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), self._tree)
        self.blocking: list[float] = []
        self.commits: list[float] = []
        """Seconds for which saves kept the loop waiting, and until they were committed."""
        self.checkpoints = opened(directory, self.blocking, self.commits)
        self.checkpoints.restore(self.abstract)
        self._at = 0
        self.train(2, saves=True)
        self.checkpoints.finish(LIMIT_SECONDS)
        self.blocking.clear()
        self.commits.clear()

    @property
    def tree(self) -> Tree:
        """The state."""
        return self._tree

    def train(self, steps: int, *, saves: bool) -> tuple[list[float], float]:
        """Trains, and saves before the second step; returns the seconds of each step, and of the processor for all."""
        seconds, cpu = [], time.process_time()
        for number in range(steps):
            began = time.perf_counter()
            if saves:
                self.checkpoints.poll()
                if number == 1:
                    self.checkpoints.save(self._at, self._tree)
            self._tree = jax.block_until_ready(self._step(self._tree))
            self._at += 1
            seconds.append(time.perf_counter() - began)
        if saves:
            self.checkpoints.finish(LIMIT_SECONDS)
        return seconds, time.process_time() - cpu


def lines_of_saves(run: Run, rounds: int, every: int) -> Iterator[str]:
    """Trains in turns with saves and without; returns what saves cost, as lines."""
    turns = in_turns(
        {"without": lambda: run.train(every, saves=False), "with": lambda: run.train(every, saves=True)}, rounds
    )
    plain, saving = (sum(sum(seconds) for seconds, _ in each) / rounds for each in turns.values())
    cpu_plain, cpu_saving = (sum(cpu for _, cpu in each) / rounds for each in turns.values())
    steps = [second for seconds, _ in turns["without"] for second in seconds]
    block, commit = statistics.mean(run.blocking), statistics.mean(run.commits)
    fingerprint, cpu = (
        best_of(5, lambda: run.fingerprinter(run.tree), clock) for clock in (time.perf_counter, time.process_time)
    )
    yield f"step without saves            {statistics.median(steps) * 1e3:8.1f} ms (median)"
    yield f"{every} steps without a save       {plain:8.2f} s"
    yield f"{every} steps with one             {saving:8.2f} s, {saving / plain - 1:+.2%}"
    yield f"  CPU time                    {(cpu_saving - cpu_plain) * 1e3:8.1f} ms, {cpu_saving / cpu_plain - 1:+.2%}"
    yield f"a save keeps the loop waiting {block * 1e3:8.1f} ms, {block / plain:.2%} of {every} steps"
    yield f"a save until its commit       {commit * 1e3:8.1f} ms, {run.bytes / commit / 1e6:.0f} MB/s"
    yield f"fingerprints of the state     {fingerprint * 1e3:8.1f} ms, {run.bytes / fingerprint / 1e9:.1f} GB/s"
    yield f"  CPU time                    {cpu * 1e3:8.1f} ms, {run.bytes / cpu / 1e9:.1f} GB/s"
    yield f"  of a save until its commit  {fingerprint / commit:8.2%}"


def lines_of_restore(run: Run, directory: str) -> Iterator[str]:
    """Restores twice; returns the parts of the second time, as lines."""
    restored = opened(directory, [], [])
    restored.restore(run.abstract)
    restored.restore(run.abstract)
    parts = restored.restore_seconds
    host = jax.tree.map(np.asarray, run.tree)
    place = best_of(3, lambda: jax.block_until_ready(jax.device_put(host)))
    yield f"restore                       {(parts.read + parts.verify) * 1e3:8.1f} ms"
    yield f"  read                        {(parts.read - place) * 1e3:8.1f} ms"
    yield f"  place on the device         {place * 1e3:8.1f} ms (a copy of the same arrays from host memory)"
    yield f"  verify                      {parts.verify * 1e3:8.1f} ms"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--parameters", type=int, default=25, help="in millions")
    arguments.add_argument("--tokens", type=int, default=1024, help="of a step")
    arguments.add_argument("--rounds", type=int, default=2, help="each with one save, and as many steps without")
    arguments.add_argument("--every", type=int, default=50, help="steps between two saves")
    arguments.add_argument("--bucket", action="store_true", help="on gs://, of an emulator on this machine")
    options = arguments.parse_args()
    with bucket() if options.bucket else tempfile.TemporaryDirectory(prefix="tpujob-checkpoints-") as directory:
        run = Run(directory, options.parameters * 1_000_000, options.tokens)
        where = "gs:// of an emulator" if options.bucket else "a folder"
        say(surroundings("jax", "orbax-checkpoint", "tensorstore"))
        say(f"state: {run.bytes / 1e6:.0f} MB; a save every {options.every} steps, {where}")
        show(lines_of_saves(run, options.rounds, options.every))
        run.checkpoints.close()
        show(lines_of_restore(run, directory))


@contextlib.contextmanager
def bucket() -> Iterator[str]:
    """Starts a storage emulator, which keeps all objects in memory; yields a folder in a bucket of it."""
    with tempfile.TemporaryDirectory() as logs, emulated_bucket("benchmark", Path(logs)) as found:
        os.environ.update(found.environment)
        yield f"gs://{found.name}/run"


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


def best_of(times: int, action: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """The least seconds of several calls of an action, after one that does not count."""
    action()
    found = []
    for _ in range(times):
        began = clock()
        action()
        found.append(clock() - began)
    return min(found)


if __name__ == "__main__":
    main()
