"""The parts of a decoder layer. Arrays: B rows, S positions, D embed, N query heads, K key heads, H head width, F mlp.

The modules get their matrices in the type of computation, and whole.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from tpujob_trainer.model.shape import ModelShape

INIT_STD = 0.02
"""Standard deviation of fresh weights, as in GPT-2 and Llama; what adds to the residual stream has it divided by
sqrt(2 · layers), so that the stream's variance does not grow with depth (GPT-2, section 2.3)."""


def weight(rngs: nnx.Rngs, std: float, **axes: int) -> nnx.Param:
    """A normally distributed weight; its dimensions are given by name, in order."""
    value = std * jax.random.normal(rngs.params(), tuple(axes.values()), jnp.float32)
    return nnx.Param(value, axes=tuple(axes))


class RMSNorm(nnx.Module):
    """x / rms(x) · scale, computed in float32 (Zhang and Sennrich 2019)."""

    def __init__(self, shape: ModelShape) -> None:
        self.scale = nnx.Param(jnp.ones((shape.embed_dim,), jnp.float32), axes=("embed",))
        self.eps = shape.norm_eps

    def __call__(self, x: jax.Array) -> jax.Array:
        """The normalised input, of the same shape and type."""
        wide = x.astype(jnp.float32)
        normed = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + self.eps)
        return (normed * self.scale[...]).astype(x.dtype)


def rotary_angles(positions: jax.Array, *, head_dim: int, theta: float) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine `[B, S, 1, H/2]` of position · theta^(-2i/H), float32 (Su and others 2021)."""
    frequencies = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    angles = positions[:, :, None, None].astype(jnp.float32) * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def rotate(x: jax.Array, angles: tuple[jax.Array, jax.Array]) -> jax.Array:
    """`x` `[B, S, heads, H]` turned by its positions.

    Dimension i is paired with i + H/2, as in Hugging Face's Llama, not with i + 1 as in Meta's own code.
    """
    cos, sin = angles
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x.dtype)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Past:
    """What positions to come see of those before them, in one layer: T positions, of which the last may be to come."""

    key: jax.Array
    """`[B, T, K, H]`, turned by its position."""
    value: jax.Array
    """`[B, T, K, H]`"""


class Attention(nnx.Module):
    """Causal self-attention in which several query heads share a key head; documents do not see each other."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        embed, width = shape.embed_dim, shape.head_dim
        self.query = weight(rngs, INIT_STD, embed=embed, heads=shape.heads, head_dim=width)
        self.key = weight(rngs, INIT_STD, embed=embed, kv_heads=shape.kv_heads, head_dim=width)
        self.value = weight(rngs, INIT_STD, embed=embed, kv_heads=shape.kv_heads, head_dim=width)
        self.out = weight(rngs, _residual_std(shape), heads=shape.heads, head_dim=width, embed=embed)

    def __call__(self, x: jax.Array, angles: tuple[jax.Array, jax.Array], mask: jax.Array) -> jax.Array:
        """What is added to the residual stream `x` `[B, S, D]`; `mask` `[B, 1, S, S]` is True where S may see T."""
        query, key, value = self._projected(x, angles)
        return self._seen(query, key, value, mask)

    def next(
        self, x: jax.Array, angles: tuple[jax.Array, jax.Array], past: Past, at: jax.Array
    ) -> tuple[jax.Array, Past]:
        """The same for one position, `x` `[B, 1, D]`, which comes after `at` others; and the past, with it."""
        query, key, value = self._projected(x, angles)
        past = Past(
            jax.lax.dynamic_update_slice_in_dim(past.key, key, at, axis=1),
            jax.lax.dynamic_update_slice_in_dim(past.value, value, at, axis=1),
        )
        mask = jnp.arange(past.key.shape[1]) <= at
        return self._seen(query, past.key, past.value, mask[None, None, None]), past

    def _projected(self, x: jax.Array, angles: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        query = rotate(jnp.einsum("BSD,DNH->BSNH", x, self.query[...]), angles)
        key = rotate(jnp.einsum("BSD,DKH->BSKH", x, self.key[...]), angles)
        return query, key, jnp.einsum("BSD,DKH->BSKH", x, self.value[...])

    def _seen(self, query: jax.Array, key: jax.Array, value: jax.Array, mask: jax.Array) -> jax.Array:
        seen = jax.nn.dot_product_attention(query, key, value, mask=mask)
        return jnp.einsum("BSNH,NHD->BSD", seen, self.out[...])


class MLP(nnx.Module):
    """SwiGLU: down(silu(gate(x)) · up(x)) (Shazeer 2020)."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        self.gate = weight(rngs, INIT_STD, embed=shape.embed_dim, mlp=shape.mlp_dim)
        self.up = weight(rngs, INIT_STD, embed=shape.embed_dim, mlp=shape.mlp_dim)
        self.down = weight(rngs, _residual_std(shape), mlp=shape.mlp_dim, embed=shape.embed_dim)

    def __call__(self, x: jax.Array) -> jax.Array:
        """What is added to the residual stream `x` `[B, S, D]`."""
        hidden = jax.nn.silu(x @ self.gate[...]) * (x @ self.up[...])
        return hidden @ self.down[...]


class Layer(nnx.Module):
    """Attention and feed-forward, each normalised before and added to the stream."""

    def __init__(self, shape: ModelShape, *, rngs: nnx.Rngs) -> None:
        self.attention_norm = RMSNorm(shape)
        self.attention = Attention(shape, rngs=rngs)
        self.mlp_norm = RMSNorm(shape)
        self.mlp = MLP(shape, rngs=rngs)

    def __call__(self, x: jax.Array, angles: Any, mask: jax.Array) -> jax.Array:
        """The residual stream `[B, S, D]` after this layer."""
        x = x + self.attention(self.attention_norm(x), angles, mask)
        return x + self.mlp(self.mlp_norm(x))

    def next(self, x: jax.Array, angles: Any, past: Past, at: jax.Array) -> tuple[jax.Array, Past]:
        """The residual stream `[B, 1, D]` of one position after `at` others, and the past, with it."""
        added, past = self.attention.next(self.attention_norm(x), angles, past, at)
        x = x + added
        return x + self.mlp(self.mlp_norm(x)), past


def attention_mask(segment_ids: jax.Array) -> jax.Array:
    """`[B, 1, S, S]`, True where a position may see another: not after itself, and of the same document."""
    length = segment_ids.shape[1]
    causal = jnp.tril(jnp.ones((length, length), bool))
    same = segment_ids[:, :, None] == segment_ids[:, None, :]
    return (causal & same)[:, None]


def _residual_std(shape: ModelShape) -> float:
    return float(INIT_STD / (2 * shape.layers) ** 0.5)
