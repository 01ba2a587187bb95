"""Rotary positions: pairs of numbers turned by an angle that grows with the position (Su and others 2021)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from tpujob_trainer.model.families.base import RopeScaling

Angles = tuple[jax.Array, jax.Array]
"""Cosine and sine, `[B, S, 1, H/2]` float32."""


def rotary_angles(
    positions: jax.Array, *, head_dim: int, theta: float, scaling: RopeScaling | None = None
) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine `[B, S, 1, H/2]` of position · theta^(-2i/H), float32."""
    frequencies = theta ** (-jnp.arange(0, head_dim, 2, dtype=jnp.float32) / head_dim)
    if scaling:
        frequencies = scaled(frequencies, scaling)
    angles = positions[:, :, None, None].astype(jnp.float32) * frequencies
    return jnp.cos(angles), jnp.sin(angles)


def scaled(frequencies: jax.Array, scaling: RopeScaling) -> jax.Array:
    """The frequencies for a longer context: long wavelengths stretched, short ones kept, a ramp between them.

    With w the wavelength 2π / frequency and L the original length, the ramp is
    (L / w - low) / (high - low), between 0 (stretched) and 1 (kept);
    huggingface/transformers:src/transformers/modeling_rope_utils.py, `_compute_llama3_parameters`.
    """
    if scaling.linear:
        return frequencies / scaling.factor
    turns = scaling.original_length * frequencies / (2 * math.pi)
    ramp = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = jnp.clip(ramp, 0.0, 1.0)
    return frequencies * (kept + (1 - kept) / scaling.factor)


def rotate(x: jax.Array, angles: Angles) -> jax.Array:
    """`x` `[B, S, heads, H]` turned by its positions.

    Dimension i is paired with i + H/2, as in Hugging Face's Llama, not with i + 1 as in Meta's own code.
    """
    cos, sin = angles
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x.dtype)
