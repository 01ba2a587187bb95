"""Products of a feed-forward block whose matrix is sent from device to device while it is multiplied.

The compiler makes such rings itself if a product has a divided matrix. In the backward pass it makes none of gate and
up, which are used there twice, recomputed and transposed: it gathers them, and waits. Here the ring of the recomputed
product keeps the parts that it receives, so that the transposed product has the whole matrix, and no byte is sent
twice. (Wang and others 2023, "Overlap Communication with Dependent Computation via Decomposition".)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from tpujob_trainer.model.adapter_product import Adapter, adapter_product
from tpujob_trainer.model.axes import FSDP
from tpujob_trainer.model.partitioning import POSITIONS, REPLICATED, of_each_device

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
