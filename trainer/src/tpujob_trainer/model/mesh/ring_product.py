"""Products with a matrix that devices send to each other while they multiply, or that is quantized and gathered.

The compiler makes rings itself if a product has a divided matrix. In the backward pass it makes none of gate and
up, which are used there twice, recomputed and transposed: it gathers them, and waits. Here the ring of the recomputed
product keeps the parts that it receives, so that the transposed product has the whole matrix, and no byte is sent
twice. (Wang and others 2023, "Overlap Communication with Dependent Computation via Decomposition".)

A narrow matrix is gathered in half the bytes. The scales are those of the whole matrix: if the dimension that is summed
over is divided, the devices exchange their largest values first. In the backward pass the scales belong to the other
dimensions, and the matrix is quantized and gathered again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from tpujob_trainer.model.axes import FSDP
from tpujob_trainer.model.lora_config import OF_MLP
from tpujob_trainer.model.partitioning import POSITIONS, REPLICATED, gathered_spec, of_each_device, travel, weight_spec
from tpujob_trainer.model.quantized import Adapter, adapter_product, product

if TYPE_CHECKING:
    from tpujob_trainer.model.shape import Quantization


def widen_over(mesh: Mesh) -> Callable[..., jax.Array]:
    """Returns `quantized.product` of `BSD,DF->BSF`, not quantized, for a matrix whose F is divided over `fsdp`.

    All other axes of the mesh must have one device.
    """

    @jax.custom_vjp
    def widen(x: jax.Array, matrix: jax.Array) -> jax.Array:
        return jnp.einsum("BSD,DF->BSF", x, matrix)

    def forward(x: jax.Array, matrix: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        specs = (POSITIONS, PartitionSpec(None, FSDP)), (POSITIONS, REPLICATED)
        widened, whole = of_each_device(_ring, mesh, *specs)(x, matrix)
        return widened, (x, whole)

    def backward(kept: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, whole = kept
        return jnp.einsum("BSF,DF->BSD", gradient, whole), jnp.einsum("BSD,BSF->DF", x, gradient)

    widen.defvjp(forward, backward)

    def widened(
        equation: str, x: jax.Array, weight: jax.Array, kind: Quantization | None, adapter: Adapter | None = None
    ) -> jax.Array:
        assert kind is None
        found: jax.Array = widen(x, weight)
        return found if adapter is None else found + adapter_product(equation, x, adapter)

    return widened


def _ring(x: jax.Array, part: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The product of `x` `[B, S, D]` with all parts `[D, F / devices]`, and these side by side.

    Half of them arrive from each neighbour, so that both directions of a link are used.
    """
    devices, here = jax.lax.axis_size(FSDP), jax.lax.axis_index(FSDP)
    width = part.shape[1]
    widened = jnp.zeros((*x.shape[:2], devices * width), x.dtype)
    whole = jnp.zeros((part.shape[0], devices * width), part.dtype)

    def with_part(part: jax.Array, owner: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = owner % devices * width
        mine = jnp.einsum("BSD,DF->BSF", x, part)
        return (
            jax.lax.dynamic_update_slice_in_dim(widened, mine, first, axis=2),
            jax.lax.dynamic_update_slice_in_dim(whole, part, first, axis=1),
        )

    onwards = [(device, (device + 1) % devices) for device in range(devices)]
    back = [(to, device) for device, to in onwards]
    widened, whole = with_part(part, here)
    before = behind = part
    for steps in range(1, devices // 2 + 1):
        before = jax.lax.ppermute(before, FSDP, onwards)
        widened, whole = with_part(before, here - steps)
        if steps < devices - steps:
            behind = jax.lax.ppermute(behind, FSDP, back)
            widened, whole = with_part(behind, here + steps)
    return widened, whole


NARROW = {"attention": ("query", "key", "value", "out"), "mlp": OF_MLP}
"""Matrices of a layer that are multiplied in a narrow type, by module."""

_AXES = {"D": "embed", "N": "heads", "K": "kv_heads", "H": "head_dim", "F": "mlp"}
"""The axis of each letter of an equation."""


def narrow_over(mesh: Mesh, *, makes_rings: bool) -> Callable[..., jax.Array]:
    """Returns `quantized.product` for a matrix that is still divided over a mesh; see `rings.narrow_rings`."""

    def narrow(
        equation: str, x: jax.Array, weight: jax.Array, kind: Quantization | None, adapter: Adapter | None = None
    ) -> jax.Array:
        axes = tuple(_AXES[letter] for letter in equation.split("->")[0].split(",")[1])
        way = travel(mesh, weight_spec(axes), gathered_spec(axes))._replace(makes_rings=makes_rings)
        return product(equation, x, weight, kind, adapter, way)

    return narrow
