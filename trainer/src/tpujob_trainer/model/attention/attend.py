"""Attention over the mesh: rows, heads and positions are divided over the devices.

Queries are not moved; the keys and values of a row are gathered over `context`. TPUs use the splash kernel if it
supports the length and the head width; otherwise, and on other devices, attention is computed in blocks.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.model.attention.blocked import blocked_attention
from tpujob_trainer.model.axes import CONTEXT, ROW_AXES, TENSOR
from tpujob_trainer.model.partitioning import POSITIONS, of_each_device
from tpujob_trainer.model.remat import named
from tpujob_trainer.model.shape import ModelShape, RematName

ATTENTION: RematName = "attention"
"""Name, for `remat.policy`, of the values of attention that the backward pass needs."""
HEADS = PartitionSpec(ROW_AXES, CONTEXT, TENSOR)
"""`[B, S, heads, H]`"""


class Attend(Protocol):
    """Attention over the whole length."""

    def __call__(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        is_global: jax.Array | bool,
        sinks: jax.Array | None = None,
    ) -> jax.Array:
        """`[B, S, N, V]`, from queries `[B, S, N, H]`, keys `[B, S, K, H]`, values `[B, S, K, V]` and sinks `[N]`."""


def make_attend(shape: ModelShape, mesh: Mesh, segment_ids: jax.Array, *, is_interpreted: bool = False) -> Attend:
    """Returns the attention function of all layers for a batch.

    Args:
        shape: of the model.
        mesh: over which rows, positions and heads are divided.
        segment_ids: int32 `[B, S]`; a position attends to earlier ones of its own segment.
        is_interpreted: whether the TPU kernel runs interpreted on other devices, for tests.
    """
    length = segment_ids.shape[1]
    device = mesh.devices.flat[0]
    by_kernel = False
    if device.platform == "tpu" or is_interpreted:
        from tpujob_trainer.model.attention import splash  # half a second of processor, which other devices save

        by_kernel = splash.is_possible(length // mesh.shape[CONTEXT], shape.head_dim)
    if by_kernel:

        def with_window(window: int | None) -> Callable[..., jax.Array]:
            return _by_kernel(shape, mesh, segment_ids, window, is_interpreted)
    else:

        def with_window(window: int | None) -> Callable[..., jax.Array]:
            return _in_blocks(shape, mesh, segment_ids, window)

    def attend(
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        is_global: jax.Array | bool,
        sinks: jax.Array | None = None,
    ) -> jax.Array:
        given = (query, key, value, sinks)
        if len(set(shape.global_layers)) == 1:
            return with_window(shape.window)(*given)
        found: jax.Array = jax.lax.cond(is_global, with_window(None), with_window(shape.window), *given)
        return found

    return attend


def _by_kernel(
    shape: ModelShape, mesh: Mesh, segment_ids: jax.Array, window: int | None, is_interpreted: bool
) -> Callable[..., jax.Array]:
    from tpujob_trainer.model.attention import splash

    length = segment_ids.shape[1]
    kernel, spec = splash.make_kernel(
        heads=shape.heads,
        length=length,
        device_kind=mesh.devices.flat[0].device_kind,
        window=None if window is None or window >= length else window,
        softcap=shape.attention_softcap,
        sharding=NamedSharding(mesh, PartitionSpec(TENSOR, CONTEXT)),
        head_shards=mesh.shape[TENSOR],
        length_shards=mesh.shape[CONTEXT],
        name=ATTENTION,
        is_interpreted=is_interpreted,
    )

    def of_device(kernel: Any, query: Any, key: Any, value: Any, segments: Any, sinks: Any) -> jax.Array:
        keys, values, of_keys = _whole_rows(mesh, key, value, segments)
        return splash.apply(kernel, query, keys, values, segments, of_keys, shape.score_scale, sinks)

    specs = (spec, HEADS, HEADS, HEADS, POSITIONS, PartitionSpec(TENSOR))
    mapped = of_each_device(of_device, mesh, specs, HEADS)
    return lambda query, key, value, sinks: mapped(kernel, query, key, value, segment_ids, sinks)


def _in_blocks(shape: ModelShape, mesh: Mesh, segment_ids: jax.Array, window: int | None) -> Callable[..., jax.Array]:
    def of_device(
        query: jax.Array, key: jax.Array, value: jax.Array, segments: jax.Array, sinks: jax.Array | None
    ) -> jax.Array:
        keys, values, of_keys = _whole_rows(mesh, key, value, segments)
        first = 0 if mesh.shape[CONTEXT] == 1 else jax.lax.axis_index(CONTEXT) * query.shape[1]
        return blocked_attention(
            query,
            keys,
            values,
            segments,
            of_keys,
            scale=shape.score_scale,
            first=first,
            window=window,
            softcap=shape.attention_softcap,
            sinks=sinks,
        )

    mapped = of_each_device(of_device, mesh, (HEADS, HEADS, HEADS, POSITIONS, PartitionSpec(TENSOR)), HEADS)
    return lambda query, key, value, sinks: named(ATTENTION, mapped(query, key, value, segment_ids, sinks))


def _whole_rows(mesh: Mesh, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    """The arrays with all positions of this device's rows."""
    if mesh.shape[CONTEXT] == 1:
        return arrays
    return tuple(jax.lax.all_gather(array, CONTEXT, axis=1, tiled=True) for array in arrays)
