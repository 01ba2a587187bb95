"""Products in a narrow type are near those they stand for, and models learn by them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer.train.test_parity import SHAPE, TOLERANCE, losses
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.chips import BY_KIND
from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.mesh.shape import MeshShape
from tpujob_trainer.model.quantized import product, require_faster
from tpujob_trainer.model.shape import Quantization

pytestmark = pytest.mark.usefixtures("compiled_once")

LOSSES = Path(__file__).parents[1] / "train" / "losses_0_1.json"
"""Of `SHAPE`, without a narrow type."""
NEAR: dict[Quantization, float] = {"int8": 0.02, "fp8": 0.05}
"""Of a product of random numbers: the norm of the difference, relative. A step of int8 is 1/254 of the largest number
of 64, about 2.5 times a usual one; fp8 has three bits behind the first."""
LOSS_TOLERANCE: dict[Quantization, float] = {"int8": 0.05, "fp8": 0.15}
"""Of losses between 4.2 and 1.1, over fifty steps."""


@pytest.mark.parametrize("kind", NEAR)
@pytest.mark.parametrize(
    ("equation", "sizes"), [("BSD,DNH->BSNH", (64, 4, 32)), ("BSNH,NHD->BSD", (4, 16, 48)), ("BSD,DF->BSF", (64, 96))]
)
def test_product_and_gradients_are_near(equation: str, sizes: tuple[int, ...], kind: Quantization) -> None:
    rng = np.random.default_rng(0)
    summed = len(equation.split(",")[0]) - 2
    x = rng.normal(size=(2, 16, *sizes[:summed])).astype(np.float32) * np.array([[[1e-3]], [[1e3]]]).reshape(
        2, *(1,) * (summed + 1)
    )
    weight = jnp.asarray(rng.normal(size=sizes), jnp.float32)
    pulled = jnp.asarray(rng.normal(size=jnp.einsum(equation, x, weight).shape), jnp.float32)

    def found(kind: Quantization | None) -> tuple[jax.Array, ...]:
        value, backward = jax.vjp(lambda x, w: product(equation, x, w, kind), jnp.asarray(x, jnp.float32), weight)
        return value, *backward(pulled)

    for near, plain in zip(found(kind), found(None), strict=True):
        for row_near, row_plain in zip(near, plain, strict=True):
            assert jnp.linalg.norm(row_near - row_plain) <= NEAR[kind] * jnp.linalg.norm(row_plain)


def test_nothing_becomes_nothing() -> None:
    zeros = jnp.zeros((1, 2, 8))
    assert not jnp.any(product("BSD,DF->BSF", zeros, jnp.ones((8, 4)), "int8"))
    assert not jnp.any(product("BSD,DF->BSF", jnp.ones((1, 2, 8)), jnp.zeros((8, 4)), "fp8"))


@pytest.mark.parametrize(
    ("kind", "mesh"), [("int8", MeshShape(fsdp=4, tensor=2)), ("fp8", MeshShape())], ids=["int8, divided", "fp8"]
)
def test_fifty_steps_learn_as_without(kind: Quantization, mesh: MeshShape) -> None:
    plain = json.loads(LOSSES.read_text())
    narrow = losses(dataclasses.replace(SHAPE, quantization=kind), mesh)
    np.testing.assert_allclose(narrow, plain, atol=LOSS_TOLERANCE[kind], rtol=0)
    assert np.max(np.abs(np.subtract(narrow, plain))) > TOLERANCE


@pytest.mark.parametrize(
    ("kind", "device_kind", "instead"),
    [("int8", "TPU v4", "leave it out"), ("fp8", "TPU v6 lite", "choose int8"), ("int8", "TPU7x", "choose fp8")],
)
def test_type_that_is_no_faster_is_refused(kind: Quantization, device_kind: str, instead: str) -> None:
    with pytest.raises(ConfigurationError, match=f"quantization: {kind} is no faster than bfloat16 on .*{instead}"):
        require_faster(kind, device_kind)
    for faster in BY_KIND[device_kind].narrow_rates:
        require_faster(faster, device_kind)  # type: ignore[arg-type]
    require_faster(kind, "cpu")


def test_mixtures_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^quantization: int8 .* 8 experts"):
        ModelConfig(preset="mixtral-8x7b", quantization="int8")
