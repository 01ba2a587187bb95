"""The losses of routers, beside what transformers says of the same logits; and that they balance a router."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tpujob_trainer.model.experts import Routing, route, router_losses

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
