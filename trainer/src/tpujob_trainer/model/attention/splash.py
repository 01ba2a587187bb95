"""Attention on TPU by JAX's splash kernel.

Fully masked blocks are not computed, and scores never leave on-chip memory
(jax-ml/jax:jax/experimental/pallas/ops/tpu/splash_attention).
"""

from typing import Any

import jax
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import NamedSharding

LANES = 128
"""Block sizes and lengths are multiples of it."""

BLOCKS = {"TPU v6 lite": 1024, "TPU7x": 1024}
"""Positions per block, by device kind; a third faster with 1024 on v6e (apple/axlearn#958)."""

DEFAULT_BLOCK = 512


def is_possible(length: int, head_dim: int) -> bool:
    """Whether the kernel supports this length and this head width."""
    return length % LANES == 0 and head_dim % 64 == 0


def block_size(device_kind: str, length: int) -> int:
    """Positions per block: those of the device kind, or the most below that divide the length.

    Args:
        device_kind: as in JAX.
        length: positions per device; a multiple of LANES.
    """
    block = min(BLOCKS.get(device_kind, DEFAULT_BLOCK), length)
    while length % block:
        block -= LANES
    return block


def block_sizes(device_kind: str, length: int) -> kernels.BlockSizes:
    """The block sizes of the forward and backward kernels; arguments as in `block_size`."""
    block = block_size(device_kind, length)
    return kernels.BlockSizes(
        block_q=block,
        block_kv=block,
        block_kv_compute=block,
        block_q_dkv=block,
        block_kv_dkv=block,
        block_kv_dkv_compute=block,
        block_q_dq=block,
        block_kv_dq=block,
    )


def make_kernel(
    *,
    heads: int,
    length: int,
    device_kind: str,
    window: int | None = None,
    softcap: float | None = None,
    sharding: NamedSharding | None = None,
    head_shards: int = 1,
    length_shards: int = 1,
    name: str | None = None,
    is_interpreted: bool = False,
) -> tuple[Any, Any]:
    """The causal kernel of one row, and its `shard_map` specification.

    It takes queries `[N, S, H]`, already scaled, keys `[K, T, H]`, values `[K, T, V]`, and `segment_ids`.

    Args:
        heads: N, over all devices.
        length: positions of a row, over all devices; a multiple of LANES.
        device_kind: as in JAX.
        window: most keys that a query attends to, its own included; None: all before it.
        softcap: scores s become cap · tanh(s / cap).
        sharding: over heads and query positions; None: on one device.
        head_shards: devices over which heads are divided.
        length_shards: devices over which query positions are divided.
        name: for `remat.policy`, of the results that the backward pass needs.
        is_interpreted: whether XLA computes it, for tests without a TPU.
    """
    mask: Any = masks.CausalMask((length, length), shard_count=length_shards)
    if window is not None:
        mask = masks.LocalMask((length, length), (window - 1, 0), 0, shard_count=length_shards)
    kernel = kernels.make_splash_mha(
        mask=masks.MultiHeadMask([mask] * heads),
        block_sizes=block_sizes(device_kind, length // length_shards),
        attn_logits_soft_cap=softcap,
        head_shards=head_shards,
        q_seq_shards=length_shards,
        # The backward pass needs the sums of exponentials besides the output: the kernel names both.
        residual_checkpoint_name=name,
        interpret=is_interpreted,
    )
    return kernel, None if sharding is None else kernel.manual_sharding_spec(sharding)


def apply(
    kernel: Any,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    query_segments: jax.Array,
    key_segments: jax.Array,
    scale: float,
    sinks: jax.Array | None = None,
) -> jax.Array:
    """The output `[B, S, N, V]` for queries `[B, S, N, H]`, keys `[B, T, K, H]` and values `[B, T, K, V]`.

    Segments are `[B, S]` and `[B, T]`. A sink, `[N]`, is one more score of its head, without a value.
    """

    def of_row(q: jax.Array, k: jax.Array, v: jax.Array, q_ids: jax.Array, kv_ids: jax.Array) -> jax.Array:
        found: jax.Array = kernel(q, k, v, segment_ids=kernels.SegmentIds(q_ids, kv_ids), sinks=sinks)
        return found

    heads_first = [x.swapaxes(1, 2) for x in (query * scale, key, value)]
    seen: jax.Array = jax.vmap(of_row)(*heads_first, query_segments, key_segments)
    return seen.swapaxes(1, 2).astype(query.dtype)
