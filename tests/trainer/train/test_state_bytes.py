"""The state's size by arithmetic is that of the arrays, whatever is trained and by which optimizer."""

import dataclasses
import math
from typing import Any

import jax
import pytest

from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.model.custom_model import make_model
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train.arithmetic import state_bytes_per_device
from tpujob_trainer.train.optimizer import make_optimizer, make_schedule
from tpujob_trainer.train.step import abstract_state

BLOCK: dict[str, Any] = {
    "model": {"layers": 3, "embedDim": 2048, "heads": 16, "kvHeads": 4, "mlpDim": 8192, "vocabSize": 32768},
    "data": {"path": "data/*.parquet"},
    "steps": 10,
    "batchSize": 8,
    "sequenceLength": 64,
}
CHANGES: dict[str, dict[str, Any]] = {
    "adamw": {},
    "average": {"optimizer": {"emaDecay": 0.99}},
    "lion": {"optimizer": {"name": "lion"}},
    "muon": {"optimizer": {"name": "muon"}},
    "adafactor": {"optimizer": {"name": "adafactor"}},
}
ADAPTERS: dict[str, tuple[LoraConfig, dict[str, Any]]] = {
    "of all matrices": (LoraConfig(rank=8), {}),
    "of experts": (
        LoraConfig(rank=256),
        {"mesh": {"expert": 4}, "model": BLOCK["model"] | {"experts": 8, "family": "mixtral"}},
    ),
    "of attention by lion": (LoraConfig(rank=64, targets=("query", "out")), {"optimizer": {"name": "lion"}}),
}
MESHES: dict[str, tuple[int, dict[str, Any]]] = {
    "two slices": (2, {}),
    "four slices": (4, {"optimizer": {"name": "muon"}}),
    "fsdp 2, data 4": (1, {"mesh": {"fsdp": 2}}),
    "tensor 4": (1, {"mesh": {"tensor": 4}}),
    "two slices, context 2, tensor 2": (2, {"mesh": {"context": 2, "tensor": 2}}),
    "expert 4": (1, {"mesh": {"expert": 4}, "model": BLOCK["model"] | {"experts": 4, "family": "mixtral"}}),
}
TOLERANCE = 0.05
"""Vectors are whole on each device, and Adafactor keeps rows and columns of sums."""


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_arithmetic_is_the_size_of_the_arrays(changes: dict[str, Any]) -> None:
    run = resolved(changes)
    assert state_bytes_per_device(run) == pytest.approx(array_bytes(run), rel=TOLERANCE)


@pytest.mark.parametrize(("slices", "changes"), MESHES.values(), ids=MESHES)
def test_devices_that_repeat_the_weights_hold_them_whole(slices: int, changes: dict[str, Any]) -> None:
    run = resolved(changes, slices=slices)
    assert state_bytes_per_device(run) == pytest.approx(array_bytes(run), rel=TOLERANCE)


@pytest.mark.parametrize(("lora", "changes"), ADAPTERS.values(), ids=ADAPTERS)
def test_weights_beside_adapters_have_no_moments(lora: LoraConfig, changes: dict[str, Any]) -> None:
    run = dataclasses.replace(resolved(changes), lora=lora)
    assert state_bytes_per_device(run) == pytest.approx(array_bytes(run), rel=TOLERANCE)


def resolved(changes: dict[str, Any], *, slices: int = 1) -> ResolvedConfig:
    block = parse_config({**BLOCK, **changes})
    return resolve(block, num_devices=8, vocabulary=259, platform="cpu", slices=slices)


def array_bytes(run: ResolvedConfig) -> int:
    """Of the state's arrays, on one of 8 devices."""
    mesh = build_mesh(slices=run.mesh.slice, devices=jax.devices()[:8], shape=run.mesh)
    model = make_model(run.model, mesh, run.lora)
    schedule = make_schedule(run.optimizer, steps=run.steps)
    state = abstract_state(model, make_optimizer(run.optimizer, schedule, has_adapters=run.lora is not None))
    leaves = jax.tree.leaves(state)
    return sum(leaf.dtype.itemsize * math.prod(leaf.sharding.shard_shape(leaf.shape)) for leaf in leaves)
