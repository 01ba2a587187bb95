"""Fresh weights, with the names of their dimensions, and normalisation by the root of the mean square."""

import jax
import jax.numpy as jnp
from flax import nnx

from tpujob_trainer.model.shape import ModelShape

INIT_STD = 0.02
"""Standard deviation of fresh weights, as in GPT-2 and Llama; for weights that add to the residual stream, divided by
sqrt(2 · layers), so that the stream's variance does not grow with depth (GPT-2, section 2.3)."""


def weight(rngs: nnx.Rngs, std: float, **axes: int) -> nnx.Param:
    """A normally distributed weight; its dimensions are given by name, in order."""
    value = std * jax.random.normal(rngs.params(), tuple(axes.values()), jnp.float32)
    return nnx.Param(value, axes=tuple(axes))


def zeros(**axes: int) -> nnx.Param:
    """A weight that starts from zero."""
    return nnx.Param(jnp.zeros(tuple(axes.values()), jnp.float32), axes=tuple(axes))


def residual_std(shape: ModelShape) -> float:
    """Standard deviation of weights that add to the residual stream."""
    return float(INIT_STD / (2 * shape.layers) ** 0.5)


class RMSNorm(nnx.Module):
    """x / rms(x) · scale, computed in float32 (Zhang and Sennrich 2019)."""

    def __init__(self, shape: ModelShape, *, eps: float | None = None, **axes: int) -> None:
        """Normalises over the last dimensions, `axes` or else `embed`; the default of `eps` is the shape's."""
        axes = axes or {"embed": shape.embed_dim}
        fill = jnp.zeros if shape.zero_centered_norms else jnp.ones
        self.scale = nnx.Param(fill(tuple(axes.values()), jnp.float32), axes=tuple(axes))
        self.eps = shape.norm_eps if eps is None else eps
        self.offset = 1.0 if shape.zero_centered_norms else 0.0

    def __call__(self, x: jax.Array) -> jax.Array:
        """The normalised input, of the same shape and type."""
        wide = x.astype(jnp.float32)
        over = tuple(range(-self.scale.ndim, 0))
        normed = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=over, keepdims=True) + self.eps)
        return (normed * (self.scale[...] + self.offset)).astype(x.dtype)
