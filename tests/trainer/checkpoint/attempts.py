"""Attempts of a small run: one process, one device, real files."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.retention import Listener, Retention, Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime

LIMIT_SECONDS = 120.0
# Of two writes of TensorStore that fail, the second may outlive the event loop in which Orbax waited for both, and then
# complains in whatever test runs.
LATE_FAILURES = pytest.mark.filterwarnings("ignore:(?s).*Event loop is closed:pytest.PytestUnraisableExceptionWarning")
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))


def new_runtime():
    """Of a new attempt: what was said in the coordination service before is gone."""
    return Runtime(process_id=0, num_processes=1, attempt_id="0.0-x", host="here", coordination=kv_store.alone())


def tree(value, width=4):
    parameters = {
        "layers": [{"w": jnp.full((width, 2), value, jnp.float32)}],
        "norm": jnp.full((), value, jnp.bfloat16),
    }
    return {
        "model": parameters,
        "optimizer": OPTIMIZER.init(parameters),
        "step": jnp.int32(value),
        "data": np.arange(6, dtype=np.int64).reshape(2, 3) + value,
    }


def abstract(width=4):
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree(0, width))


class Told(Listener):
    """What the listener heard, in order."""

    def __init__(self):
        self.lines: list[tuple] = []
        super().__init__(
            saved=lambda step, seconds: self.lines.append(("saved", step)),
            committed=lambda commit, seconds: self.lines.append(("committed", commit.step)),
            failed=lambda step, why: self.lines.append(("failed", step)),
            passed_over=lambda step, why: self.lines.append(("passed over", step)),
        )


def run(directory, *, steps=(), keep=3, width=4, told=None):
    """One attempt that saves at the given steps; what it restored before."""
    checkpoints = Checkpoints(str(directory), Settings(retention=Retention(last=keep)), new_runtime(), listener=told)
    restored = checkpoints.restore(abstract(width))
    for step in steps:
        assert checkpoints.save(step, tree(step, width))
    assert checkpoints.finish(LIMIT_SECONDS)
    checkpoints.close()
    return restored


def restored_step(directory, **arguments):
    """The step that an attempt, as in `run`, goes on from; its content is that of the step."""
    restored = run(directory, **arguments)
    assert restored is not None
    step, found = restored
    assert int(found["step"]) == step
    return step


def damage(directory, step):
    """Takes away the list of leaves. Lost bytes of leaves are in tests/multiprocess.

    TensorStore's reads outlive the event loop in which one of them failed, and complain in whatever test runs then.
    """
    (directory / "steps" / str(step) / "state" / "_METADATA").unlink()
