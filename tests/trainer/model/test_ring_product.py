"""Matrices that travel while they are multiplied: the same numbers, on chips and meshes where that saves time."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tests.trainer.train.test_parity import LOSSES, SHAPE, TOLERANCE, losses
from tpujob_trainer.model import decoder
from tpujob_trainer.model.axes import FSDP, NO_RINGS, Rings
from tpujob_trainer.model.chips import BY_KIND, CHIPS
from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.mesh.ring_product import widen_over
from tpujob_trainer.model.mesh.rings import rings_of
from tpujob_trainer.model.partitioning import POSITIONS, REPLICATED

pytestmark = pytest.mark.usefixtures("compiled_once")

BOTH = Rings(mlp=True, attention=True)


def with_chip(monkeypatch: pytest.MonkeyPatch, generation: str) -> None:
    monkeypatch.setitem(BY_KIND, jax.devices()[0].device_kind, CHIPS[generation])


@pytest.mark.parametrize("devices", [2, 4])
def test_a_ring_has_the_product_and_the_gradients_of_the_whole_matrix(devices: int) -> None:
    mesh = build_mesh(slices=1, devices=jax.devices()[:devices])
    x = jax.random.normal(jax.random.key(0), (8, 4, 16))
    matrix = jax.random.normal(jax.random.key(1), (16, 32))
    weights = jax.random.normal(jax.random.key(2), (8, 4, 32))
    places = [NamedSharding(mesh, spec) for spec in (POSITIONS, PartitionSpec(None, FSDP))]

    def total(widen: Any) -> Any:
        return jax.jit(
            jax.value_and_grad(lambda x, w: jnp.sum(weights * widen("BSD,DF->BSF", x, w, None)), (0, 1)),
            in_shardings=places,
        )(x, matrix)

    ring = total(widen_over(mesh))
    whole = total(lambda equation, x, w, _: jnp.einsum(equation, x, w))
    for mine, other in zip(jax.tree.leaves(ring), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("remat", ["full", "none"])
def test_losses_of_fifty_steps_are_those_without_rings(monkeypatch: pytest.MonkeyPatch, remat: Any) -> None:
    monkeypatch.setattr(decoder, "rings_of", lambda *_: BOTH)
    monkeypatch.setattr(Model, "_gathers_at_once", False)
    found = losses(dataclasses.replace(SHAPE, remat=remat), MeshShape(fsdp=4))
    np.testing.assert_allclose(found, LOSSES, atol=TOLERANCE)


def test_matrices_of_a_ring_are_divided_along_mlp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "rings_of", lambda *_: BOTH)
    model = Model(SHAPE, build_mesh(slices=1))
    kept, seen = model.specs["layers"], model.gathered_specs["layers"]
    along = (FSDP, "expert", "context")
    assert kept["mlp"]["gate"] == seen["mlp"]["gate"] == PartitionSpec(None, None, along)
    assert kept["mlp"]["down"] == seen["mlp"]["down"] == PartitionSpec(None, along, None)
    assert kept["attention"]["query"] == seen["attention"]["query"] == PartitionSpec(None, along, "tensor", None)
    assert kept["mlp_norm"]["scale"] == REPLICATED


@pytest.mark.parametrize(
    ("preset", "generation", "mesh", "rings"),
    [
        pytest.param("mistral-7b", "v6e", MeshShape(fsdp=8), BOTH, id="few devices"),
        pytest.param("tiny", "v6e", MeshShape(fsdp=8), NO_RINGS, id="narrow parts"),
        pytest.param("mistral-7b", "v6e", MeshShape(fsdp=4, tensor=2), NO_RINGS, id="another axis"),
        pytest.param("mistral-7b", "v6e", MeshShape(slice=2, fsdp=4), NO_RINGS, id="slices"),
        pytest.param("mistral-7b", "v5e", MeshShape(fsdp=8), NO_RINGS, id="gathers that do not wait"),
        pytest.param("mixtral-8x7b", "v5p", MeshShape(fsdp=8), Rings(attention=True), id="experts"),
    ],
)
def test_rings_are_where_parts_are_wide(
    monkeypatch: pytest.MonkeyPatch, preset: str, generation: str, mesh: MeshShape, rings: Rings
) -> None:
    shape = ModelConfig(preset=preset).resolve(vocabulary=32_000, platform="tpu")
    built = build_mesh(slices=mesh.slice, shape=mesh)
    assert rings_of(built, shape) == NO_RINGS
    with_chip(monkeypatch, generation)
    assert rings_of(built, shape) == rings


def test_narrow_products_have_no_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would gather matrices that are not narrow yet, or find scales over several devices."""
    shape = ModelConfig(preset="mistral-7b", quantization="int8").resolve(vocabulary=32_000, platform="tpu")
    with_chip(monkeypatch, "v6e")
    assert rings_of(build_mesh(slices=1), shape) == NO_RINGS
