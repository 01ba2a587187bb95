"""Products in a narrow type whose matrix is quantized before it is gathered: in half the bytes.

The scales are those of the whole matrix: if the dimension that is summed over is divided, the devices exchange their
largest values first. In the backward pass the scales belong to the other dimensions, and the matrix is quantized and
gathered again.
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
