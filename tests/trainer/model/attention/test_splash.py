"""The TPU's kernel, computed by XLA here, against attention in blocks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tpujob_trainer.model.attention.attend import make_attend
from tpujob_trainer.model.attention.splash import block_size, is_possible
from tpujob_trainer.model.families.base import Latent
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.shape import ModelShape

SHAPE = ModelShape(layers=1, embed_dim=256, heads=4, kv_heads=2, head_dim=128, mlp_dim=8, vocab_size=8)
LENGTH = 256


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"window": 100},
        {"attention_softcap": 5.0},
        {"sinks": True},
        {"sinks": True, "window": 100},
        {"kv_heads": 4, "head_dim": 192, "rotary_dim": 64, "latent": Latent(query_rank=None, rank=8, value_dim=128)},
    ],
    ids=["plain", "window", "soft cap", "sinks", "sinks and window", "narrower values"],
)
def test_kernel_equals_blocks(changes: dict) -> None:
    shape = dataclasses.replace(SHAPE, **changes)
    mesh = build_mesh(slices=1, devices=jax.devices()[:2], shape=MeshShape(tensor=2))
    rng = np.random.default_rng(0)
    sizes = ((4, shape.head_dim), (shape.kv_heads, shape.head_dim), (shape.kv_heads, shape.value_dim))
    query, key, value = (rng.normal(size=(1, LENGTH, *size)).astype(np.float32) for size in sizes)
    segments = jnp.asarray(np.arange(LENGTH) >= 90, jnp.int32)[None]
    sinks = rng.normal(size=4).astype(np.float32)

    def of(interpreted: bool):
        attend = make_attend(shape, mesh, segments, is_interpreted=interpreted)

        def total(q, k, v, sinks):
            return jnp.sum(jnp.sin(attend(q, k, v, False, sinks if shape.sinks else None)))

        return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2, 3)))

    found, told = of(True)(query, key, value, sinks), of(False)(query, key, value, sinks)
    assert np.any(told[1][3]) == shape.sinks
    # Sums of 1e5 terms are compared relatively.
    np.testing.assert_allclose(found[0], told[0], rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found[1], told[1])


@pytest.mark.parametrize(("length", "width", "possible"), [(2048, 128, True), (200, 128, False), (2048, 24, False)])
def test_kernel_has_no_blocks_for_odd_lengths(length: int, width: int, possible: bool) -> None:
    assert is_possible(length, width) == possible


@pytest.mark.parametrize(
    ("device_kind", "length", "block"),
    [
        ("TPU v5 lite", 8192, 512),
        ("TPU v5", 8192, 512),
        ("TPU v6 lite", 8192, 1024),
        ("TPU7x", 8192, 1024),
        ("TPU v6 lite", 1536, 768),
        ("TPU v5 lite", 640, 128),
        ("TPU v6 lite", 256, 256),
    ],
)
def test_blocks_are_those_of_the_generation(device_kind: str, length: int, block: int) -> None:
    assert block_size(device_kind, length) == block
