"""How weights and optimizer state are divided over all devices (FSDP): each array along one of its dimensions."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def divided_dimension(shape: tuple[int, ...], parts: int) -> int | None:
    """The longest dimension that divides into so many equal parts, the first of equal ones; None: none does."""
    fitting = [at for at, size in enumerate(shape) if size and size % parts == 0]
    return max(fitting, key=lambda at: (shape[at], -at), default=None)


def fsdp_shardings(tree: Any, mesh: Mesh) -> Any:
    """The sharding of each array over all axes of a mesh; what no dimension of divides is on every device.

    Args:
        tree: Arrays, or what `jax.eval_shape` gives.
        mesh: Of all devices.
    """

    def sharding(leaf: Any) -> NamedSharding:
        at = divided_dimension(np.shape(leaf), mesh.size)
        spec = PartitionSpec() if at is None else PartitionSpec(*[None] * at, mesh.axis_names)
        return NamedSharding(mesh, spec)

    return jax.tree.map(sharding, tree)


def placed(leaf: Any, sharding: NamedSharding) -> jax.Array:
    """An array of which every process gives the whole, of which each device keeps its part."""
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])
