"""FSDP shardings of weights and optimizer state: each array is divided over all devices along one dimension."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_contract.batch_rows import divided_dimension


def fsdp_shardings(tree: Any, mesh: Mesh) -> Any:
    """The sharding of each array over all axes of a mesh; arrays without a divisible dimension are replicated.

    Args:
        tree: Arrays, or the result of `jax.eval_shape`.
        mesh: Of all devices.
    """

    def sharding(leaf: Any) -> NamedSharding:
        at = divided_dimension(np.shape(leaf), mesh.size)
        spec = PartitionSpec() if at is None else PartitionSpec(*[None] * at, mesh.axis_names)
        return NamedSharding(mesh, spec)

    return jax.tree.map(sharding, tree)


def placed(leaf: Any, sharding: NamedSharding) -> jax.Array:
    """The sharded array of values that every process passes whole; each device keeps its part."""
    if jax.dtypes.issubdtype(getattr(leaf, "dtype", None), jax.dtypes.prng_key):
        return jax.random.wrap_key_data(placed(jax.random.key_data(leaf), sharding), impl=jax.random.key_impl(leaf))
    values = np.asarray(leaf)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])
