"""What a layer keeps for the backward pass changes memory, never a gradient."""

import dataclasses
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tpujob_trainer.model.config import ModelConfig
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.shape import ModelShape

pytestmark = pytest.mark.usefixtures("compiled_once")

SHAPE = ModelShape(layers=2, embed_dim=32, heads=4, kv_heads=2, head_dim=8, mlp_dim=64, vocab_size=64, remat="full")
KEPT: dict[str, dict[str, Any]] = {
    "saved": {"remat_save": ("qkv", "attention", "mlp")},
    "some of each": {"remat_save": ("attention",), "remat_offload": ("input", "qkv", "mlp")},
}
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 64, (2, 16)), jnp.int32)


def gradient(shape: ModelShape) -> Any:
    """The function from weights to the gradient of what they make of fixed tokens, and the weights."""
    model = Model(shape, build_mesh(slices=1, devices=jax.devices()[:1]))
    positions, segments = jnp.broadcast_to(jnp.arange(16), (2, 16)), jnp.ones((2, 16), jnp.int32)

    def total(weights: Any) -> jax.Array:
        return jnp.sum(jnp.sin(model.hidden(weights, TOKENS, positions, segments)[0]))

    return jax.grad(total), jax.jit(lambda: model.init(0))()


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_gradients_stay_as_they_were(kept: dict[str, Any]) -> None:
    told, weights = gradient(SHAPE)
    found, _ = gradient(dataclasses.replace(SHAPE, **kept))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), jax.jit(found)(weights), jax.jit(told)(weights)
    )


@pytest.mark.parametrize(("names", "arrays"), [((), 0), (("input",), 1), (("input", "qkv", "mlp"), 6)])
def test_offloaded_values_go_to_the_host_by_name(names: tuple[Any, ...], arrays: int) -> None:
    found, weights = gradient(dataclasses.replace(SHAPE, remat_offload=names))
    moved = re.findall(r"device_put\[[^\]]*pinned_host|<host>", str(jax.make_jaxpr(found)(weights)))
    assert len(moved) >= arrays
    assert bool(moved) == bool(names)


@pytest.mark.parametrize(
    ("remat", "again"),
    [
        pytest.param("full", 2, id="gate and up; nothing needs what down makes"),
        pytest.param("dots", 0, id="products are kept"),
        pytest.param("none", 0, id="all is kept"),
    ],
)
def test_products_of_experts_that_are_computed_again(remat: Any, again: int) -> None:
    found, weights = gradient(dataclasses.replace(SHAPE, experts=4, experts_per_token=2, remat=remat))
    products = re.findall(r"= ragged_dot_general\[", str(jax.make_jaxpr(found)(weights)))
    assert len(products) == 3 + again + 6, "forward, again, and for both gradients of each"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"remat": "dots", "remat_save": ("mlp",)}, r"rematSave: .* remat: full only, and remat is dots"),
        ({"preset": "tiny", "remat_offload": ("input",)}, r"rematOffload: .* remat is none"),
        ({"remat_save": ("mlp",), "remat_offload": ("mlp",)}, r"rematOffload: mlp is in rematSave, too"),
        ({"preset": "mixtral-8x7b", "remat_save": ("mlp",)}, r"rematSave: mlp .* 8 experts"),
    ],
    ids=["beside dots", "beside the preset's none", "in both", "of experts"],
)
def test_names_that_mean_nothing_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        ModelConfig(**{"preset": "small", **fields})
