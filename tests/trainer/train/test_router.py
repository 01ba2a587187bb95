"""The losses of routers in the step: in its gradient, not in what is shown, and the same on any mesh."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.trainer.train.test_step import SGD, SHAPE, make_batch
from tpujob_trainer.config.resolve import resolve
from tpujob_trainer.config.schema import parse_config
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.train.step import init_state, make_train_step
from tpujob_trainer.train.token_loss import RouterFactors
from tpujob_trainer.values.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("compiled_once")

EXPERTS = dataclasses.replace(SHAPE, experts=4, experts_per_token=2)
FACTORS = RouterFactors(balance=0.5, z=0.1)


def stepped(mesh: MeshShape, router: RouterFactors) -> tuple[float, np.ndarray]:
    """The loss that is shown, and the routers `[layers, D, E]` after a step."""
    devices = jax.devices()[: int(np.prod(mesh.sizes))]
    model = Model(EXPERTS, build_mesh(slices=1, devices=devices, shape=mesh))
    step = make_train_step(model, SGD, optax.constant_schedule(1.0), clip_norm=1e9, router=router)
    state, metrics = step(init_state(model, SGD, 0), make_batch())
    return float(metrics.loss), np.asarray(state.weights["layers"]["experts"]["router"])


def test_router_losses_reach_the_gradient_alone_as_the_mean_over_layers() -> None:
    """What the factors change in a step is the gradient of the losses that the model gives."""
    (shown, routers), (plain, without) = stepped(MeshShape(), FACTORS), stepped(MeshShape(), RouterFactors())
    assert shown == pytest.approx(plain, rel=1e-6)
    assert np.abs(routers - without).max() > 1e-3
    divided, elsewhere = stepped(MeshShape(expert=2, fsdp=2), FACTORS)
    assert divided == pytest.approx(shown, rel=1e-5)
    # float32: sums in another order.
    np.testing.assert_allclose(elsewhere, routers, atol=1e-5, rtol=0)

    model = Model(EXPERTS, build_mesh(slices=1, devices=jax.devices()[:1]))
    batch, weights = make_batch(), init_state(model, SGD, 0).weights

    def pulled(router: jax.Array) -> jax.Array:
        experts = {**weights["layers"]["experts"], "router": router}
        changed = {**weights, "layers": {**weights["layers"], "experts": experts}}
        given = (batch.inputs, batch.positions, batch.segment_ids)
        _, _, losses = model.hidden_and_router(changed, *map(jnp.asarray, given))
        return FACTORS.balance * losses.balance + FACTORS.z * losses.z

    gradient = jax.jit(jax.grad(pulled))(weights["layers"]["experts"]["router"])
    np.testing.assert_allclose(without - routers, gradient, atol=1e-5, rtol=0)


@pytest.mark.parametrize("key", ["routerBalanceLoss", "routerZLoss"])
def test_a_model_without_experts_has_no_router(key: str) -> None:
    block = {"model": {"preset": "tiny"}, "data": {"path": "x"}, "steps": 1, key: 0.01}
    with pytest.raises(ConfigurationError, match=f"{key}: the model has no router of ours"):
        resolve(parse_config(block), num_devices=1, vocabulary=256, platform="cpu")
