"""Fresh weights, with the names of their dimensions."""

from __future__ import annotations

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
