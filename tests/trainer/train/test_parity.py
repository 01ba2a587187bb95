"""Fifty steps have the losses of the release before, whatever the mesh."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from tpujob_trainer.config.schema import OptimizerConfig
from tpujob_trainer.model import decoder
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.train.optimizer import make_optimizer, make_schedule
from tpujob_trainer.train.save_policy import StepFlags
from tpujob_trainer.train.step import Batch, TrainState, abstract_state, init_state, make_train_step

pytestmark = pytest.mark.usefixtures("compiled_once")

SHAPE = ModelShape(layers=2, embed_dim=32, heads=4, kv_heads=2, head_dim=8, mlp_dim=64, vocab_size=64)
ROWS, LENGTH, STEPS = 8, 16, 50
TOLERANCE = 1e-4
"""Of losses between 4.2 and 1.1, float32: sums in another order, amplified by fifty steps."""
LOSSES = json.loads((Path(__file__).parent / "losses_0_1.json").read_text())
"""Of the release before."""
CONFIG = OptimizerConfig(learning_rate=1e-2, warmup_steps=5)
SCHEDULE = make_schedule(CONFIG, steps=STEPS)
OPTIMIZER = make_optimizer(CONFIG, SCHEDULE)

MESHES = {
    "one device": MeshShape(),
    "fsdp 2, tensor 2": MeshShape(fsdp=2, tensor=2),
    "data 2, context 2": MeshShape(data=2, context=2),
}


def batch(step: int) -> Batch:
    """Counting modulo 61, from a random start with a random stride; two documents in a row."""
    rng = np.random.default_rng(step)
    start, stride = rng.integers(0, 61, (ROWS, 1)), rng.integers(1, 4, (ROWS, 1))
    ids = ((start + stride * np.arange(LENGTH + 1)) % 61).astype(np.int32)
    first = LENGTH // 2 + 2
    segments = np.ones((ROWS, LENGTH), np.int32)
    segments[:, first:] = 2
    positions = np.concatenate([np.arange(first), np.arange(LENGTH - first)]).astype(np.int32)
    return Batch(
        inputs=ids[:, :-1],
        targets=ids[:, 1:],
        segment_ids=segments,
        positions=np.tile(positions, (ROWS, 1)),
        loss_mask=np.tile(np.arange(LENGTH) != first - 1, (ROWS, 1)),
        signals=np.tile(StepFlags().pack(), (ROWS, 1)),
    )


@functools.cache
def begun(shape: ModelShape) -> TrainState:
    """The state before the first step, on the host; it does not depend on the mesh: see `test_step.py`."""
    model = Model(shape, build_mesh(slices=1, devices=jax.devices()[:1]))
    return jax.tree.map(np.asarray, init_state(model, OPTIMIZER, 0))


def losses(shape: ModelShape, mesh: MeshShape) -> list[float]:
    devices = jax.devices()[: int(np.prod(mesh.sizes))]
    model = Model(shape, build_mesh(slices=mesh.slice, devices=devices, shape=mesh))
    step = make_train_step(model, OPTIMIZER, SCHEDULE, clip_norm=1.0)
    places = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(model, OPTIMIZER))
    state = jax.device_put(begun(shape), places)
    found = []
    for number in range(STEPS):
        state, metrics = step(state, batch(number))
        found.append(float(metrics.loss))
    return found


@pytest.mark.parametrize(
    ("mesh", "gathered"), [*((mesh, "at once") for mesh in MESHES), ("fsdp 2, tensor 2", "layer by layer")]
)
def test_losses_are_those_of_the_release_before(mesh: str, gathered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if gathered == "layer by layer":
        monkeypatch.setattr(decoder, "GATHERED_AT_ONCE_BYTES", 0)
    np.testing.assert_allclose(losses(SHAPE, MESHES[mesh]), LOSSES, atol=TOLERANCE, rtol=0)
