"""Ring attention, against attention to gathered keys and the whole square of scores."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tpujob_trainer.model import splash
from tpujob_trainer.model.attention import make_attend
from tpujob_trainer.model.blocked_attention import blocked_attention
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh import build_mesh
from tpujob_trainer.model.mesh_choice import MeshShape
from tpujob_trainer.model.partitioning import CONTEXT
from tpujob_trainer.model.ring.attention import Ring, ring_attention
from tpujob_trainer.model.ring.blocks import InBlocks
from tpujob_trainer.model.shape import ContextAttention, ModelShape, RematName

LENGTH, HEADS, KEY_HEADS, WIDTH = 48, 4, 2, 6
TOLERANCE = 1e-4


def arrays() -> tuple[np.ndarray, ...]:
    """Queries, keys, values, and rows of three documents and of one."""
    rng = np.random.default_rng(0)
    query, key, value = (
        rng.normal(size=(2, LENGTH, heads, WIDTH)).astype(np.float32) for heads in (HEADS, KEY_HEADS, KEY_HEADS)
    )
    segments = np.stack([np.arange(LENGTH) * 3 // LENGTH, np.zeros(LENGTH)]).astype(np.int32)
    return query, key, value, segments


def in_ring(devices: int, window: int | None, softcap: float | None):
    mesh = build_mesh(slices=1, devices=jax.devices()[:devices], shape=MeshShape(context=devices))
    ring = Ring(devices, LENGTH // devices, window, InBlocks(window, softcap))
    spec = PartitionSpec(None, CONTEXT)

    def attention(*args: jax.Array) -> jax.Array:
        return ring_attention(ring, *args)

    return jax.shard_map(attention, mesh=mesh, in_specs=(spec,) * 4, out_specs=spec, check_vma=False)


def sum_of_sines(attention: Any) -> Any:
    """The function from queries, keys and values to their gradients and what was seen."""

    def loss(*qkv: jax.Array) -> tuple[jax.Array, jax.Array]:
        seen = attention(*qkv)
        return jnp.sum(jnp.sin(seen)), seen

    return jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))


@functools.cache
def of_whole_square(window: int | None, softcap: float | None) -> Any:
    query, key, value, segments = arrays()
    attend = functools.partial(blocked_attention, scale=1.0, window=window, softcap=softcap)
    return sum_of_sines(lambda q, k, v: attend(q, k, v, segments, segments))(query, key, value)


def assert_close(found: Any, told: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE), found, told)


@pytest.mark.parametrize(
    ("devices", "window", "softcap"),
    [
        (1, None, None),
        (4, None, None),
        (4, 18, None),
        (4, 30, 2.0),
        (8, None, None),
        (8, 1, None),
        (8, 7, None),
        (8, 30, None),
    ],
)
def test_ring_equals_the_whole_square(
    devices: int, window: int | None, softcap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = of_whole_square(window, softcap)
    monkeypatch.setattr("tpujob_trainer.model.ring.blocks.BLOCK", 5)
    query, key, value, segments = arrays()
    ring = in_ring(devices, window, softcap)
    assert_close(sum_of_sines(lambda q, k, v: ring(q, k, v, segments))(query, key, value), told)


@pytest.mark.parametrize(
    ("devices", "blocks", "changes"),
    [
        (2, 1, {}),
        (2, 1, {"attention_softcap": 5.0}),
        (2, 2, {"window": 100}),  # The first block of queries sees part of the device before, the second nothing.
        (4, 1, {"window": 300}),
    ],
    ids=["plain", "soft cap", "window 100", "window 300"],
)
def test_kernel_sees_what_gathered_keys_show(
    devices: int, blocks: int, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splash, "DEFAULT_BLOCK", 128)
    shape = ModelShape(layers=1, embed_dim=256, heads=4, kv_heads=2, head_dim=64, mlp_dim=8, vocab_size=8)
    shape = dataclasses.replace(shape, **changes)
    mesh = build_mesh(slices=1, devices=jax.devices()[: 2 * devices], shape=MeshShape(context=devices, tensor=2))
    length = 128 * blocks * devices
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=(1, length, heads, 64)).astype(np.float32) for heads in (4, 2, 2))
    segments = jnp.asarray(np.arange(length) >= 90, jnp.int32)[None]

    def of(way: ContextAttention, *, interpreted: bool) -> Any:
        chosen = dataclasses.replace(shape, context_attention=way)
        attend = make_attend(chosen, mesh, segments, is_interpreted=interpreted)
        return sum_of_sines(lambda q, k, v: attend(q, k, v, False))(query, key, value)

    assert_close(of("ring", interpreted=True), of("gather", interpreted=False))


TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, 64, (2, 16)), jnp.int32)


def gradient(way: ContextAttention, **changes: Any) -> tuple[Any, Any]:
    """The function from a model's weights to their gradient, over two rows on four devices, and the weights."""
    shape = ModelShape(layers=2, embed_dim=16, heads=4, kv_heads=2, head_dim=4, mlp_dim=16, vocab_size=64)
    shape = dataclasses.replace(shape, context_attention=way, **changes)
    mesh = build_mesh(slices=1, devices=jax.devices()[:4], shape=MeshShape(context=4))
    model = Model(shape, mesh)
    positions, segments = jnp.broadcast_to(jnp.arange(16), (2, 16)), jnp.ones((2, 16), jnp.int32)

    def total(weights: Any) -> jax.Array:
        return jnp.sum(jnp.sin(model.hidden(weights, TOKENS, positions, segments)[0]))

    return jax.grad(total), model.init(0)


def test_alternating_windows_learn_the_same() -> None:
    def found(way: ContextAttention, remat: str) -> Any:
        function, weights = gradient(way, remat=remat, window=6, global_every=2, attention_softcap=3.0)
        return jax.jit(function)(weights)

    assert_close(found("ring", "none"), found("gather", "full"))


def test_kept_results_save_the_second_round() -> None:
    def exchanges(kept: tuple[RematName, ...]) -> int:
        function, weights = gradient("ring", remat="full", remat_save=kept)
        return str(jax.make_jaxpr(function)(weights)).count("ppermute[")

    # Of keys, values and segments: one to the next device, one in the loop over those behind it.
    assert exchanges(()) - exchanges(("attention",)) == 6


def test_no_device_holds_the_keys_of_a_row() -> None:
    def temporaries(way: ContextAttention) -> int:
        shape = ModelShape(layers=1, embed_dim=8, heads=4, kv_heads=4, head_dim=64, mlp_dim=8, vocab_size=8)
        shape = dataclasses.replace(shape, context_attention=way)
        mesh = build_mesh(slices=1, devices=jax.devices()[:8], shape=MeshShape(context=8))
        segments = jax.ShapeDtypeStruct((1, 8192), jnp.int32)
        x = jax.ShapeDtypeStruct((1, 8192, 4, 64), jnp.float32)

        def loss(q: jax.Array, k: jax.Array, v: jax.Array, segments: jax.Array) -> jax.Array:
            return jnp.sum(make_attend(shape, mesh, segments)(q, k, v, True))

        compiled = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(x, x, x, segments).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    # Keys, values and their gradients of a whole row are 4 x 8192 x 4 x 64 x 4 bytes: 34 MB on each device.
    found = temporaries("ring"), temporaries("gather")
    assert found[0] < found[1] - 20e6, found
