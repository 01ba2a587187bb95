"""Matrix products of a layer in a narrow type, int8 or fp8, or with a low-rank adapter beside the matrix.

x · W + x · A · B instead of x · (W + A · B): the gradient of the frozen W, as large as in full fine-tuning, is never
computed (Hu and others 2021, section 4.2).

A product and the gradient of its left side are computed in the narrow type: each row of the left side and each column
of the right side is divided by its largest value. The gradient of the weights, a sum over all tokens of all devices, is
computed in the type of the values. Weights are not changed: narrow values are made for each product and never kept.
(Jouppi and others 2017, section 2, for integers; Micikevicius and others 2022 for fp8.)

No library is used: qwix applies its products for training by patching jax.numpy in a module's call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from tpujob_trainer.model.chips import BY_KIND
from tpujob_trainer.model.partitioning import Travel
from tpujob_trainer.values.errors import ConfigurationError

if TYPE_CHECKING:
    from tpujob_trainer.model.shape import Quantization

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


_TYPES: dict[str, tuple[Any, float, Any]] = {
    "int8": (jnp.int8, 127.0, jnp.int32),
    "fp8": (jnp.float8_e4m3fn, 448.0, jnp.float32),
}
"""For each kind: its type, its largest value, and the type of sums."""


def product(
    equation: str,
    x: jax.Array,
    weight: jax.Array,
    kind: Quantization | None,
    adapter: Adapter | None = None,
    way: Travel | None = None,
) -> jax.Array:
    """The `jnp.einsum` of activations and a weight, plus that with an adapter.

    Args:
        equation: the last dimensions of the first array are the first ones of the second, and summed over.
        x: `[B, S, ...]`.
        weight: in the type of `x`.
        kind: of the narrow type; None: not quantized. The adapter's products are never narrow.
        adapter: is added as x · A · B.
        way: of a weight that is still divided, to be gathered in the narrow type; None: it needs no gather.
    """
    if adapter is not None:
        return product(equation, x, weight, kind, way=way) + adapter_product(equation, x, adapter)
    if kind is None:
        return jnp.einsum(equation, x, weight)
    left, right = equation.split("->")[0].split(",")
    return _product(x, weight, len(set(left) & set(right)), kind, way)


class Products(NamedTuple):
    """How a layer multiplies by its matrices: functions with the signature of `product`, without `way`."""

    each: Callable[..., jax.Array] = product
    widen: Callable[..., jax.Array] = product
    """For gate and up of a feed-forward block."""


PLAIN = Products()


def require_faster(kind: Quantization | None, device_kind: str) -> None:
    """Checks that the device multiplies the narrow type faster than bfloat16; off TPU, all types are allowed.

    Raises:
        ConfigurationError: it does not.
    """
    chip = BY_KIND.get(device_kind)
    if kind is None or chip is None or kind in chip.narrow_rates:
        return
    known = ", ".join(chip.narrow_rates)
    raise ConfigurationError(
        f"spec.trainer.model.quantization: {kind} is no faster than bfloat16 on {device_kind}; "
        + (f"choose {known}, or leave it out" if known else "leave it out")
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _product(x: jax.Array, weight: jax.Array, summed: int, kind: str, way: Travel | None) -> jax.Array:
    rows = tuple(range(x.ndim - summed, x.ndim))
    return _narrow_product(x, weight, rows, tuple(range(summed)), kind, way)


def _forward(
    x: jax.Array, weight: jax.Array, summed: int, kind: str, way: Travel | None
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product(x, weight, summed, kind, way), (x, weight)


def _backward(
    summed: int, kind: str, way: Travel | None, kept: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, weight = kept
    outputs = weight.ndim - summed
    last = tuple(range(gradient.ndim - outputs, gradient.ndim))
    of_x = _narrow_product(gradient, weight, last, tuple(range(summed, weight.ndim)), kind, way)
    tokens = tuple(range(x.ndim - summed))
    of_weight = jax.lax.dot_general(x, gradient, ((tokens, tokens), ((), ())))
    return of_x, of_weight if way is None else way.back(of_weight)


_product.defvjp(_forward, _backward)


def _narrow_product(
    left: jax.Array,
    right: jax.Array,
    of_left: tuple[int, ...],
    of_right: tuple[int, ...],
    kind: str,
    way: Travel | None,
) -> jax.Array:
    """The product summed over `of_left` and `of_right`; `of_left` are the last dimensions of the left side."""
    narrow_left, left_scale = _narrowed(left, of_left, kind)
    narrow_right, right_scale = _narrowed(right, of_right, kind)
    if way is not None and way.makes_rings and way.divided not in of_right:
        # Each part gives separate columns: no sums are read and written again for each part.
        narrow_right = jax.lax.with_sharding_constraint(narrow_right, way.kept)
    elif way is not None:
        narrow_right = way.there(narrow_right)
    sums = jax.lax.dot_general(
        narrow_left, narrow_right, ((of_left, of_right), ((), ())), preferred_element_type=_TYPES[kind][2]
    )
    rows = jnp.squeeze(left_scale, of_left)
    columns = jnp.squeeze(right_scale, of_right)
    wide = sums.astype(jnp.float32) * rows.reshape(*rows.shape, *(1,) * columns.ndim) * columns
    return wide.astype(left.dtype)


def _narrowed(x: jax.Array, summed: tuple[int, ...], kind: str) -> tuple[jax.Array, jax.Array]:
    """The values in the narrow type, and their scales: one number for all that are summed together."""
    narrow, largest, _ = _TYPES[kind]
    wide = x.astype(jnp.float32)
    scale = jnp.maximum(jnp.max(jnp.abs(wide), axis=summed, keepdims=True), 1e-30) / largest
    scaled = wide / scale
    return (jnp.round(scaled) if kind == "int8" else scaled).astype(narrow), scale
