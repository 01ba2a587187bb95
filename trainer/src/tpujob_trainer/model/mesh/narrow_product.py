"""Products in a narrow type whose matrix is made narrow where it is kept, and gathered so: in half the bytes.

The scales are those of the whole matrix: where a device has a part of what is summed over, the largest values of all
devices are exchanged first. In the backward pass the scales belong to the other dimensions, and the matrix is made
narrow and gathered once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
from jax.sharding import Mesh

from tpujob_trainer.model.adapter_product import Adapter
from tpujob_trainer.model.lora_config import OF_MLP
from tpujob_trainer.model.partitioning import gathered_spec, travel, weight_spec
from tpujob_trainer.model.quantized import product

if TYPE_CHECKING:
    from tpujob_trainer.model.shape import Quantization

NARROW = {"attention": ("query", "key", "value", "out"), "mlp": OF_MLP}
"""Matrices of a layer that are multiplied in a narrow type, by their modules."""

_AXES = {"D": "embed", "N": "heads", "K": "kv_heads", "H": "head_dim", "F": "mlp"}
"""Of each letter of an equation."""


def narrow_over(mesh: Mesh, *, makes_rings: bool) -> Callable[..., jax.Array]:
    """`quantized.product` with a matrix that comes as it is kept on the devices of a mesh; see `rings.narrow_rings`."""

    def narrow(
        equation: str, x: jax.Array, weight: jax.Array, kind: Quantization | None, adapter: Adapter | None = None
    ) -> jax.Array:
        axes = tuple(_AXES[letter] for letter in equation.split("->")[0].split(",")[1])
        way = travel(mesh, weight_spec(axes), gathered_spec(axes))._replace(makes_rings=makes_rings)
        return product(equation, x, weight, kind, adapter, way)

    return narrow
