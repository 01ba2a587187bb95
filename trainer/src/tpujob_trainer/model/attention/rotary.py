"""Rotary positions: pairs of numbers rotated by an angle that grows with the position (Su and others 2021)."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from tpujob_trainer.model.families.base import RopeScaling

Angles = tuple[jax.Array, jax.Array]
"""Cosine and sine, `[B, S, 1, R/2]` float32; R numbers of each head are rotated."""


def rotary_angles(positions: jax.Array, *, rotary_dim: int, theta: float, scaling: RopeScaling | None = None) -> Angles:
    """Cosine and sine of position · theta^(-2i/R), float32, with the scaling's changes of frequency and magnitude.

    Args:
        positions: int32 `[B, S]`.
        rotary_dim: R.
        theta: base of the frequencies.
        scaling: None: the frequencies are not scaled.
    """
    exponents = jnp.arange(0, rotary_dim, 2, dtype=jnp.float32) / rotary_dim
    frequencies = theta**-exponents
    if scaling is not None:
        frequencies = _scaled(frequencies, exponents, theta, scaling, positions)
    angles = positions[:, :, None, None].astype(jnp.float32) * frequencies
    magnitude = 1.0 if scaling is None else scaling.magnitude
    return jnp.cos(angles) * magnitude, jnp.sin(angles) * magnitude


def _scaled(
    frequencies: jax.Array, exponents: jax.Array, theta: float, scaling: RopeScaling, positions: jax.Array
) -> jax.Array:
    """The frequencies `[R/2]`, or `[B, 1, 1, R/2]` if they depend on the length of a row."""
    if scaling.way == "linear":
        return frequencies / scaling.factor
    if scaling.way == "llama3":
        return scaled(frequencies, scaling)
    if scaling.way == "yarn":
        return _yarn(frequencies, theta, scaling)
    lengths = (jnp.max(positions, axis=1) + 1)[:, None, None, None]
    if scaling.way == "longrope":
        short, long = (jnp.array(each, jnp.float32) for each in (scaling.short_factors, scaling.long_factors))
        return frequencies / jnp.where(lengths > scaling.original_length, long, short)
    # Dynamic: huggingface/transformers:src/transformers/modeling_rope_utils.py, `_compute_dynamic_ntk_parameters`.
    width = 2 * frequencies.shape[0]
    beyond = jnp.maximum(lengths / scaling.original_length, 1.0)
    base = theta * (scaling.factor * beyond - (scaling.factor - 1)) ** (width / (width - 2))
    changed: jax.Array = base**-exponents
    return changed


def scaled(frequencies: jax.Array, scaling: RopeScaling) -> jax.Array:
    """The frequencies for a longer context: long wavelengths stretched, short ones kept, a ramp between them.

    With w the wavelength 2π / frequency and L the original length, the ramp is
    (L / w - low) / (high - low), between 0 (stretched) and 1 (kept);
    huggingface/transformers:src/transformers/modeling_rope_utils.py, `_compute_llama3_parameters`.
    """
    turns = scaling.original_length * frequencies / (2 * math.pi)
    ramp = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = jnp.clip(ramp, 0.0, 1.0)
    return frequencies * (kept + (1 - kept) / scaling.factor)


def _yarn(frequencies: jax.Array, theta: float, scaling: RopeScaling) -> jax.Array:
    """The frequencies, stretched if they have few rotations within the original length, kept if they have many.

    Peng and others 2023, section 3.2.
    """
    pairs = frequencies.shape[0]

    def place(turns: float) -> float:
        """The index of the frequency with so many rotations within the original length."""
        return pairs * math.log(scaling.original_length / (turns * 2 * math.pi)) / math.log(theta)

    low, high = place(scaling.beta_fast), place(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    ramp = np.clip((np.arange(pairs, dtype=np.float32) - low) / ((high - low) or 0.001), 0, 1)
    return frequencies * (1 - ramp) + frequencies / scaling.factor * ramp


def pairs_apart(x: jax.Array) -> jax.Array:
    """`[..., H]` with its numbers 0, 2, 4, ... before 1, 3, 5, ...: adjacent pairs become the pairs of `rotate`."""
    return jnp.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def rotate(x: jax.Array, angles: Angles) -> jax.Array:
    """`x` `[B, S, heads, H]` with its first R numbers rotated by their positions.

    Dimension i is paired with i + R/2, as in Hugging Face's Llama, not with i + 1 as in Meta's own code.
    """
    cos, sin = angles
    turned = 2 * cos.shape[-1]
    first, second = jnp.split(x[..., :turned].astype(jnp.float32), 2, axis=-1)
    found = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)
    return found if turned == x.shape[-1] else jnp.concatenate([found, x[..., turned:]], axis=-1)
