"""Adapters beside their matrices compute what the sum computes, without the gradient of what is frozen."""

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.families.base import Latent, SigmoidRouter
from tpujob_trainer.model.lora import LORA, LoraModel
from tpujob_trainer.model.lora_config import LoraConfig
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.train.arithmetic import adapter_parameters

pytestmark = pytest.mark.usefixtures("compiled_once")

SMALL = ModelShape(layers=2, embed_dim=32, heads=4, kv_heads=2, head_dim=8, mlp_dim=64, vocab_size=64)
KINDS: dict[str, dict[str, Any]] = {
    "dense": {},
    "experts": {"family": "mixtral", "experts": 4, "experts_per_token": 2},
    "latent": {
        "family": "deepseek-v3",
        "layers": 3,
        "kv_heads": 4,
        "head_dim": 12,
        "rotary_dim": 4,
        "latent": Latent(query_rank=24, rank=16, value_dim=10),
        "experts": 4,
        "experts_per_token": 2,
        "sigmoid_router": SigmoidRouter(),
        "shared_mlp_dim": 16,
        "dense_layers": 1,
        "dense_mlp_dim": 48,
    },
}
WIDE: dict[str, Any] = {
    "layers": 2,
    "embed_dim": 1024,
    "heads": 8,
    "kv_heads": 8,
    "head_dim": 128,
    "mlp_dim": 4096,
    "vocab_size": 128,
}


def loss(model: Model, weights: Any, ids: jax.typing.ArrayLike) -> jax.Array:
    ids = jnp.asarray(ids)
    positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    hidden, output = model.hidden(weights, ids, positions, jnp.ones_like(ids))
    return jnp.mean(jax.nn.log_softmax(hidden @ output)[..., 3])


@pytest.mark.parametrize(
    ("axes", "kind"),
    [
        ({"slice": 2, "context": 2}, "dense"),
        ({"fsdp": 2, "tensor": 2}, "dense"),
        ({"fsdp": 2, "expert": 2}, "experts"),
        ({"expert": 2, "tensor": 2}, "latent"),
    ],
    ids=str,
)
def test_gradients_are_those_of_the_sum(axes: dict[str, int], kind: str) -> None:
    """Of the sum on one device."""
    shape = dataclasses.replace(SMALL, **KINDS[kind])
    config = LoraConfig(rank=3, alpha=6.0)
    if kind == "latent":
        config = dataclasses.replace(config, targets=("query", "out"))
    dice = np.random.default_rng(2)
    ids = dice.integers(0, 64, (8, 16))

    def model_on(devices: int, axes: dict[str, int]) -> LoraModel:
        mesh = MeshShape(**axes, reason="")
        return LoraModel(shape, build_mesh(slices=mesh.slice, devices=jax.devices()[:devices], shape=mesh), config)

    alone, divided = model_on(1, {}), model_on(4, axes)
    base = jax.tree.map(np.asarray, jax.jit(lambda: alone.init(0))())
    adapters = jax.tree.map(lambda leaf: dice.normal(0, 0.1, leaf.shape).astype(np.float32), base.pop(LORA))

    def of_the_sum(adapters: Any) -> jax.Array:
        return loss(alone._base, alone.merged({**base, LORA: adapters}), ids)

    def beside(adapters: Any, base: Any) -> jax.Array:
        return loss(divided, {**base, LORA: adapters}, ids)

    wanted, expected = jax.jit(jax.value_and_grad(of_the_sum))(adapters)
    places = dict(divided.shardings)
    placed = jax.device_put(adapters, places.pop(LORA)), jax.device_put(base, places)
    found, gradients = jax.jit(jax.value_and_grad(beside))(*placed)

    assert float(found) == pytest.approx(float(wanted), rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), gradients, expected)


@pytest.mark.parametrize(("platform", "of_matrices"), [("tpu", "bfloat16"), ("cpu", "float32")])
def test_gradients_of_adapters_travel_between_replicas_in_float32(platform: str, of_matrices: str) -> None:
    shape = dataclasses.replace(SMALL, **KINDS["experts"], compute_dtype="bfloat16")
    model = LoraModel(shape, build_mesh(slices=2), LoraConfig(rank=3, targets=("gate", "up", "down")))
    device = types.SimpleNamespace(platform=platform)
    model.mesh = types.SimpleNamespace(devices=np.array([device]))
    found = jax.eval_shape(model.travelling, model.abstract_weights)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(found.pop(LORA))} == {"float32"}
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(found)} == {"float32", of_matrices}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_adapters_are_those_that_check_tells(kind: str) -> None:
    shape = dataclasses.replace(SMALL, **KINDS[kind])
    config = LoraConfig(rank=3, targets=("query", "out")) if kind == "latent" else LoraConfig(rank=3)
    made = LoraModel(shape, build_mesh(slices=1, devices=jax.devices()[:1]), config).abstract_weights[LORA]
    assert adapter_parameters(shape, config, expert=1) == sum(leaf.size for leaf in jax.tree.leaves(made))


@pytest.mark.parametrize(("remat", "most"), [("none", 0.72), ("full", 0.80)])
def test_step_of_adapters_leaves_a_third_of_the_operations_out(remat: Any, most: float) -> None:
    """Of forward and backward, as XLA counts them; attention's own products have no weights."""
    shape = ModelShape(**WIDE, remat=remat)
    mesh = build_mesh(slices=1, devices=jax.devices()[:1])

    def operations(model: Model, trained: set[str]) -> float:
        def of_trained(some: Any, rest: Any, ids: jax.Array) -> jax.Array:
            return loss(model, {**rest, **some}, ids)

        parts = [{k: v for k, v in model.abstract_weights.items() if (k in trained) is each} for each in (True, False)]
        ids = jax.ShapeDtypeStruct((2, 256), jnp.int32)
        return float(jax.jit(jax.grad(of_trained)).lower(*parts, ids).cost_analysis()["flops"])

    full = Model(shape, mesh)
    adapters = LoraModel(shape, mesh, LoraConfig(rank=16))
    assert operations(adapters, {LORA}) <= most * operations(full, {*full.abstract_weights})
