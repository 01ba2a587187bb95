"""A run moves between meshes with and without rings of products: the same bits come back, and the same losses follow.

With rings, a feed-forward block's matrices are divided along another dimension than without.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding

from tests.trainer.checkpoint.attempts import LIMIT_SECONDS, new_runtime
from tests.trainer.train.test_parity import TOLERANCE, batch
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.retention import Retention, Settings
from tpujob_trainer.config.schema import OptimizerConfig
from tpujob_trainer.model import decoder
from tpujob_trainer.model.axes import NO_RINGS, Rings
from tpujob_trainer.model.chips import BY_KIND, CHIPS
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.mesh.rings import rings_of
from tpujob_trainer.model.partitioning import REPLICATED
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.train.loop import checkpoint_tree
from tpujob_trainer.train.optimizer import make_optimizer, make_schedule
from tpujob_trainer.train.step import TrainState, TrainStep, abstract_state, init_state, make_train_step

pytestmark = pytest.mark.usefixtures("compiled_once", "like_v5p")

WIDTH = 144 * 2
"""A part of a ring on v5p has at least 140 columns. Of four devices, each has 72."""
SHAPE = ModelShape(layers=2, embed_dim=WIDTH, heads=4, kv_heads=2, head_dim=8, mlp_dim=WIDTH, vocab_size=64)
RING = MeshShape(fsdp=2)
OTHERS = {
    "more devices": MeshShape(fsdp=4),
    "another axis": MeshShape(fsdp=2, tensor=2),
    "two slices": MeshShape(slice=2, fsdp=2),
}
CONFIG = OptimizerConfig(learning_rate=1e-2, warmup_steps=5)
SAVED_AT, LAST = 3, 6


@pytest.fixture(scope="module")
def like_v5p() -> Iterator[None]:
    """Rings where a v5p slice has them, and weights that are gathered layer by layer, as on TPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BY_KIND, jax.devices()[0].device_kind, CHIPS["v5p"])
        patch.setattr(decoder, "GATHERED_AT_ONCE_BYTES", 0)
        yield


class Attempt:
    """A run on a mesh."""

    def __init__(self, mesh: MeshShape) -> None:
        devices = jax.devices()[: int(np.prod(mesh.sizes))]
        self.model = Model(SHAPE, build_mesh(slices=mesh.slice, devices=devices, shape=mesh))
        schedule = make_schedule(CONFIG, steps=50)
        self.optimizer = make_optimizer(CONFIG, schedule)
        self.step: TrainStep = make_train_step(self.model, self.optimizer, schedule, clip_norm=1.0)

    def begin(self) -> TrainState:
        state = init_state(self.model, self.optimizer, 0)
        state, _ = self.train(state, 0, SAVED_AT)
        return state

    def train(self, state: TrainState, first: int, end: int) -> tuple[TrainState, list[float]]:
        """The state after the batches from `first` to `end`, and their losses."""
        found = []
        for number in range(first, end):
            state, metrics = self.step(state, batch(number))
            found.append(float(metrics.loss))
        return state, found

    def save(self, directory: Path, state: TrainState) -> None:
        checkpoints = _checkpoints(directory)
        assert checkpoints.restore(self._expected()) is None
        assert checkpoints.save(SAVED_AT, checkpoint_tree(state, np.zeros(1, np.int32)))
        assert checkpoints.finish(LIMIT_SECONDS)
        checkpoints.close()

    def restore(self, directory: Path) -> TrainState:
        checkpoints, expected = _checkpoints(directory), self._expected()
        restored = checkpoints.restore(expected)
        assert restored is not None
        checkpoints.close()
        step, tree = restored
        assert step == SAVED_AT
        state = TrainState(tree["step"], tree["weights"], tree["optimizer"])
        for leaf, place in zip(jax.tree.leaves(tree), jax.tree.leaves(expected), strict=True):
            assert leaf.sharding.is_equivalent_to(place.sharding, leaf.ndim)
        return state

    def _expected(self) -> dict[str, Any]:
        position = jax.ShapeDtypeStruct((1,), np.int32, sharding=NamedSharding(self.model.mesh, REPLICATED))
        return checkpoint_tree(abstract_state(self.model, self.optimizer), position)


@functools.cache
def attempt_on(mesh: MeshShape) -> Attempt:
    return Attempt(mesh)


def _checkpoints(directory: Path) -> Checkpoints:
    return Checkpoints(str(directory), Settings(retention=Retention(last=1)), new_runtime())


@pytest.mark.parametrize("leaves_rings", [False, True], ids=["to rings", "from rings"])
@pytest.mark.parametrize("mesh", OTHERS.values(), ids=OTHERS)
def test_bits_and_losses_are_the_same_on_both_sides(tmp_path: Path, mesh: MeshShape, leaves_rings: bool) -> None:
    before, after = map(attempt_on, (RING, mesh) if leaves_rings else (mesh, RING))
    rings = [rings_of(attempt.model.mesh, SHAPE) for attempt in (before, after)]
    assert rings == [Rings(mlp=True, attention=True), NO_RINGS][:: 1 if leaves_rings else -1]
    assert before.model.specs != after.model.specs

    state = before.begin()
    before.save(tmp_path, state)
    kept = jax.tree.map(np.asarray, state)
    restored = after.restore(tmp_path)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, restored), kept)

    _, undisturbed = before.train(state, SAVED_AT, LAST)
    _, found = after.train(restored, SAVED_AT, LAST)
    np.testing.assert_allclose(found, undisturbed, atol=TOLERANCE, rtol=0)
