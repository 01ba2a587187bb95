"""Adapters beside their matrices compute what the sum computes, without the gradient of what is frozen."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.lora import LORA, LoraModel
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.shape import MeshShape
from tpujob_trainer.model.shape import ModelShape

pytestmark = pytest.mark.usefixtures("compiled_once")

SMALL = ModelShape(layers=2, embed_dim=32, heads=4, kv_heads=2, head_dim=8, mlp_dim=64, vocab_size=64)
WIDE: dict[str, Any] = {
    "layers": 2,
    "embed_dim": 1024,
    "heads": 8,
    "kv_heads": 8,
    "head_dim": 128,
    "mlp_dim": 4096,
    "vocab_size": 128,
}


def loss(model: Model, weights: Any, ids: jax.Array) -> jax.Array:
    positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    hidden, output = model.hidden(weights, ids, positions, jnp.ones_like(ids))
    return jnp.mean(jax.nn.log_softmax(hidden @ output)[..., 3])


@pytest.mark.parametrize(
    ("axes", "experts"),
    [
        ({"fsdp": 8}, False),
        ({"data": 2, "fsdp": 2, "tensor": 2}, False),
        ({"slice": 2, "fsdp": 2, "context": 2}, False),
        ({"fsdp": 2, "expert": 2, "tensor": 2}, True),
        ({"fsdp": 8}, True),
    ],
    ids=str,
)
def test_gradients_are_those_of_the_sum(axes: dict[str, int], experts: bool) -> None:
    shape = SMALL
    if experts:
        shape = ModelShape(**{**vars(SMALL), "family": "mixtral", "experts": 4, "experts_per_token": 2})
    sizes = {"slice": 1, "data": 1, "fsdp": 1, "expert": 1, "context": 1, "tensor": 1} | axes
    mesh = build_mesh(slices=sizes["slice"], shape=MeshShape(**sizes, reason=""))
    model = LoraModel(shape, mesh, LoraConfig(rank=3, alpha=6.0))
    weights = model.init(0)
    dice = np.random.default_rng(2)
    weights[LORA] = jax.tree.map(lambda leaf: dice.normal(0, 0.1, leaf.shape).astype(np.float32), weights[LORA])
    weights = jax.device_put(weights, model.shardings)
    ids = jnp.asarray(dice.integers(0, 64, (8, 16)))

    def of_the_sum(adapters: Any) -> jax.Array:
        return loss(model._base, model.merged({**weights, LORA: adapters}), ids)

    def beside(adapters: Any) -> jax.Array:
        return loss(model, {**weights, LORA: adapters}, ids)

    wanted, expected = jax.jit(jax.value_and_grad(of_the_sum))(weights[LORA])
    found, gradients = jax.jit(jax.value_and_grad(beside))(weights[LORA])

    assert float(found) == pytest.approx(float(wanted), rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), gradients, expected)


@pytest.mark.parametrize(("remat", "most"), [("none", 0.72), ("full", 0.80)])
def test_step_of_adapters_leaves_a_third_of_the_operations_out(remat: Any, most: float) -> None:
    """Of forward and backward, as the compiler counts them; attention's own products have no weights."""
    shape = ModelShape(**WIDE, remat=remat)
    mesh = build_mesh(slices=1, devices=jax.devices()[:1])

    def operations(model: Model, trained: set[str]) -> float:
        def of_trained(some: Any, rest: Any, ids: jax.Array) -> jax.Array:
            return loss(model, {**rest, **some}, ids)

        parts = [{k: v for k, v in model.abstract_weights.items() if (k in trained) is each} for each in (True, False)]
        ids = jax.ShapeDtypeStruct((2, 256), jnp.int32)
        compiled = jax.jit(jax.grad(of_trained)).lower(*parts, ids).compile()
        return float(compiled.cost_analysis()["flops"])

    full = Model(shape, mesh)
    adapters = LoraModel(shape, mesh, LoraConfig(rank=16))
    assert operations(adapters, {LORA}) <= most * operations(full, {*full.abstract_weights})
