"""The product of activations with a low-rank adapter, computed separately from that with the adapted matrix.

x · W + x · A · B instead of x · (W + A · B): the gradient of the frozen W, as large as in full fine-tuning, is never
computed (Hu and others 2021, section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

type Adapter = tuple[jax.Array, jax.Array]
"""A has the matrix's input dimensions, then the rank; B the rank, then the output dimensions. B is already scaled."""
type Adapters = Mapping[str, Adapter]
"""The adapters of a layer, by the name of the matrix."""
NONE: Adapters = {}
_RANK = "Z"


def adapter_product(equation: str, x: jax.Array, adapter: Adapter) -> jax.Array:
    """`x` times A times B, in the type of `x`.

    Args:
        equation: einsum of the product with the matrix, such as "BSD,DNH->BSNH"; without the letter Z.
        x: `[B, S, ...]`.
        adapter: of the matrix.
    """
    operands, out = equation.split("->")
    left, right = operands.split(",")
    inputs = "".join(letter for letter in right if letter in left)
    outputs = "".join(letter for letter in right if letter not in left)
    kept = "".join(letter for letter in left if letter not in inputs)
    a, b = (matrix.astype(x.dtype) for matrix in adapter)
    narrow = jnp.einsum(f"{left},{inputs}{_RANK}->{kept}{_RANK}", x, a)
    return jnp.einsum(f"{kept}{_RANK},{_RANK}{outputs}->{out}", narrow, b)


def of_experts(x: jax.Array, adapter: Adapter, counts: jax.Array) -> jax.Array:
    """The product of rows, sorted by expert, with A and B of each row's expert.

    Args:
        x: `[T, inputs]`.
        adapter: `[E, inputs, rank]` and `[E, rank, outputs]`.
        counts: int32 `[E]`, rows of each expert.
    """
    a, b = (matrix.astype(x.dtype) for matrix in adapter)
    return jax.lax.ragged_dot(jax.lax.ragged_dot(x, a, counts), b, counts)
