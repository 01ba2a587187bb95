"""The losses of routers, beside what transformers says of the same logits; and that they balance a router."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.experts import Routing, route, route_by_sigmoid, router_losses
from tpujob_trainer.model.families.base import Latent, SigmoidRouter
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape

CHANGES: dict[str, dict[str, Any]] = {
    "gpt-oss-20b": {"layers": 2, "kv_heads": 2, "head_dim": 8, "experts": 4, "experts_per_token": 2},
    "deepseek-v3": {
        "layers": 3,
        "kv_heads": 4,
        "head_dim": 12,
        "rotary_dim": 4,
        "latent": Latent(query_rank=24, rank=16, value_dim=8),
        "experts": 8,
        "experts_per_token": 3,
        "sigmoid_router": SigmoidRouter(groups=4, groups_per_token=2, scale=2.5),
        "shared_mlp_dim": 24,
        "dense_layers": 1,
        "dense_mlp_dim": 40,
    },
}
REFERENCE = json.loads((Path(__file__).parent / "router_reference.json").read_text())


def routing(scores: jax.Array, chosen: int) -> Routing:
    """What `route` makes of these scores."""
    return route(scores, jnp.eye(scores.shape[1]), chosen)


@pytest.mark.parametrize("chosen", [1, 2])
@pytest.mark.parametrize("which", ["all", "masked"])
def test_balance_equals_transformers(which: str, chosen: int) -> None:
    logits = jnp.asarray(REFERENCE["logits"], jnp.float32)
    counts = np.asarray(REFERENCE["counts"], bool).ravel() if which == "masked" else np.ones(logits.shape[1], bool)
    found = [float(router_losses(routing(layer, chosen), jnp.asarray(counts)).balance) for layer in logits]
    # float32, some operations.
    np.testing.assert_allclose(found, REFERENCE["losses"][which][str(chosen)], rtol=1e-5)


def test_z_is_the_mean_squared_log_of_the_sum() -> None:
    logits = np.asarray(REFERENCE["logits"][0], np.float64)
    counts = np.asarray(REFERENCE["counts"], bool).ravel()
    plain = np.mean(np.log(np.sum(np.exp(logits[counts]), axis=1)) ** 2)
    found = router_losses(routing(jnp.asarray(logits, jnp.float32), 2), jnp.asarray(counts)).z
    assert float(found) == pytest.approx(plain, rel=1e-5)


def test_balance_of_sigmoids_counts_their_parts_of_the_sum() -> None:
    scores = np.array([[2.0, 0.0, -1.0, 1.0], [0.0, 3.0, 1.0, -2.0]])
    way = SigmoidRouter(scale=2.5)
    made = route_by_sigmoid(jnp.asarray(scores, jnp.float32), jnp.eye(4), 2, jnp.zeros(4), way, norm_topk=True)
    sigmoids = 1 / (1 + np.exp(-scores))
    means = np.mean(sigmoids / sigmoids.sum(axis=1, keepdims=True), axis=0)
    assert made.indices.tolist() == [[0, 3], [1, 2]]
    np.testing.assert_allclose(made.weights.sum(axis=1), 2.5, rtol=1e-6)
    # Each expert gets half of the tokens.
    found = router_losses(made, jnp.ones(2, bool)).balance
    assert float(found) == pytest.approx(4 * np.sum(0.5 * means), rel=1e-6)


def test_experts_are_of_the_best_groups_and_the_bias_only_chooses() -> None:
    # The best expert is in a group whose two best are not best together.
    scores = jnp.array([[4.0, -4.0, 1.0, 1.0, 0.5, 0.8]])
    way = SigmoidRouter(groups=3, groups_per_token=2)
    bias = jnp.array([0.0, 0.0, 0.0, 0.1, 0.0, 0.0])
    made = route_by_sigmoid(scores, jnp.eye(6), 3, bias, way, norm_topk=False)
    assert made.indices.tolist() == [[3, 2, 5]]
    np.testing.assert_allclose(made.weights[0], jax.nn.sigmoid(jnp.array([1.0, 1.0, 0.8])), rtol=1e-6)


def test_nothing_counts_means_zero() -> None:
    found = router_losses(routing(jnp.ones((3, 4)), 2), jnp.zeros(3, bool))
    assert (float(found.balance), float(found.z)) == (0.0, 0.0)


def test_descent_balances_a_router() -> None:
    # All tokens have something in common, which one expert prefers.
    x = jax.random.normal(jax.random.key(0), (256, 8)).at[:, 0].set(1.0)
    router = jax.random.normal(jax.random.key(1), (8, 4)).at[0, 0].add(4.0)
    counts = jnp.ones(256, bool)

    @jax.jit
    def descend(router: jax.Array) -> jax.Array:
        return router - 0.5 * jax.grad(lambda r: router_losses(route(x, r, 2), counts).balance)(router)

    def most(router: jax.Array) -> int:
        return int(jnp.bincount(route(x, router, 2).indices.ravel(), length=4).max())

    before = most(router)
    for _ in range(50):
        router = descend(router)
    # 512 places over 4 experts: 128 where all get the same, 256 where all go to one.
    assert before > 200
    assert most(router) < 150


@pytest.mark.usefixtures("compiled_once")
@pytest.mark.parametrize("preset", CHANGES)
def test_a_divided_mixture_has_the_gradients_of_one_device(preset: str) -> None:
    """What comes out, and each gradient: biases count once, the layers without experts are divided as the others."""
    shape = dataclasses.replace(
        ModelConfig(preset=preset).resolve(vocabulary=2, platform="cpu"),
        embed_dim=32,
        heads=4,
        mlp_dim=16,
        vocab_size=64,
        **CHANGES[preset],
    )
    dice = np.random.default_rng(0)
    ids = dice.integers(0, 64, (8, 16))
    positions = np.broadcast_to(np.arange(16), ids.shape)

    def computed(**axes: int) -> Any:
        mesh = MeshShape(**axes, reason="")
        model = Model(shape, build_mesh(slices=1, devices=jax.devices()[: int(np.prod(mesh.sizes))], shape=mesh))
        dice = np.random.default_rng(1)
        drawn = jax.tree.map(lambda leaf: dice.normal(0, 0.2, leaf.shape).astype(np.float32), model.abstract_weights)
        weights = jax.device_put(drawn, model.shardings)

        def total(weights: Any) -> jax.Array:
            given = (jnp.asarray(each) for each in (ids, positions, np.ones_like(ids)))
            hidden, output = model.hidden(weights, *given)
            return jnp.mean(jax.nn.log_softmax(hidden @ output)[..., 3])

        return jax.tree.map(np.asarray, jax.jit(jax.value_and_grad(total))(weights))

    loss, gradients = computed()
    for axes in ({"expert": 2, "tensor": 2}, {"fsdp": 2, "expert": 2}):
        found, divided = computed(**axes)
        assert found == pytest.approx(loss, rel=1e-6), axes
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), divided, gradients)
    of_experts = gradients["layers"]["experts"]
    if preset == "gpt-oss-20b":
        assert np.any(of_experts["down_bias"])
    else:
        assert np.any(gradients["dense_layers"]["mlp"]["down"])
        assert np.any(of_experts["shared"]["down"])
        assert not np.any(of_experts["router_bias"])
