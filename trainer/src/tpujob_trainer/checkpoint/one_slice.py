"""Reading a checkpoint with the processes of one slice, and the copy from its devices to those of the other slices.

Slices hold the same arrays. Where every slice reads them, a bucket serves the state once for each; here once, and the
data-centre network carries the rest: each device gets the shard of the device in its place in the slice that reads.

Orbax's `SingleReplicaArrayHandler` does alike, but starts the exchange in the processes that could read while another
one has failed, and they wait for it. Here all vote between reading and the exchange.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled


class OneSlice:
    """For trees of certain shapes and shardings, on a mesh with an axis of slices."""

    def __init__(self, abstract: Any, mesh: Mesh, axis: str, *, process_id: int, reads: int = 0) -> None:
        """For what `one_slice` has found possible; nothing is compiled yet. The slice `reads` is the one that reads."""
        self._abstract = abstract
        self._mesh = mesh
        self._axis = axis
        self._process_id = process_id
        read_by = np.take(mesh.devices, [reads], axis=mesh.axis_names.index(axis))
        self._read_mesh = Mesh(read_by, mesh.axis_names, axis_types=mesh.axis_types)
        self.slices = _processes(mesh, axis)
        """The processes of each slice."""
        self.is_reader = process_id in self.slices[reads]
        """Whether this process reads."""

    def read_by(self, index: int) -> OneSlice:
        """The same, with another slice that reads."""
        return OneSlice(self._abstract, self._mesh, self._axis, process_id=self._process_id, reads=index)

    def abstract(self) -> Any:
        """The same tree, on the devices of the slice that reads alone."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=NamedSharding(self._read_mesh, leaf.sharding.spec)
            ),
            self._abstract,
        )

    def compile(self) -> None:
        """Compiles the exchange, so that no process waits for another one's compiler in it."""
        for leaf in jax.tree.leaves(self._abstract):
            self._program(leaf)

    def broadcast_to_slices(self, tree: Any) -> Any:
        """The arrays on all slices, the same bits. All processes call it, those that did not read with None.

        One leaf after the other, so that memory holds two copies of one leaf at most; `tree` is used up.
        """
        wanted, structure = jax.tree.flatten(self._abstract)
        found = jax.tree.leaves(tree) if self.is_reader else [None] * len(wanted)
        return structure.unflatten([self._spread_leaf(leaf, part) for leaf, part in zip(wanted, found, strict=True)])

    def _spread_leaf(self, wanted: jax.ShapeDtypeStruct, found: jax.Array | None) -> jax.Array:
        sharding = wanted.sharding
        of_device = (1, *sharding.shard_shape(wanted.shape))
        if found is None:
            parts = [jnp.zeros(of_device, wanted.dtype, device=device) for device in sharding.addressable_devices]
        else:
            parts = [shard.data.reshape(of_device) for shard in found.addressable_shards]
            found.delete()
        whole = jax.make_array_from_single_device_arrays(
            (self._mesh.shape[self._axis], *wanted.shape), self._stacked(sharding), parts
        )
        result: jax.Array = jax.block_until_ready(self._program(wanted)(whole))
        whole.delete()
        return result

    def _stacked(self, sharding: NamedSharding) -> NamedSharding:
        """Of the leaves of all slices, [slices, ...]."""
        return NamedSharding(self._mesh, PartitionSpec(self._axis, *sharding.spec))

    def _program(self, leaf: jax.ShapeDtypeStruct) -> Compiled:
        return _program(self._mesh, self._axis, leaf.sharding.spec, leaf.shape, np.dtype(leaf.dtype))


def one_slice(abstract: Any, axis: str | None, *, process_id: int) -> OneSlice | None:
    """How to read with one slice; None: every process has to read its own shards.

    That is where there is one slice, where a process has devices of several, or where the slices hold different parts
    of an array.

    Args:
        abstract: Tree of `jax.ShapeDtypeStruct` with shardings.
        axis: Of the mesh, along which arrays are replicated; None: there is none.
        process_id: Of this process.
    """
    leaves = jax.tree.leaves(abstract)
    meshes = {leaf.sharding.mesh for leaf in leaves if isinstance(leaf.sharding, NamedSharding)}
    if axis is None or len(meshes) != 1 or not all(isinstance(leaf.sharding, NamedSharding) for leaf in leaves):
        return None
    (mesh,) = meshes
    if axis not in mesh.shape or any(axis in _axes(leaf.sharding.spec) for leaf in leaves):
        return None
    if not are_separate(_processes(mesh, axis)):
        return None
    return OneSlice(abstract, mesh, axis, process_id=process_id)


def are_separate(processes: Sequence[set[int]]) -> bool:
    """Whether there are several slices, each of processes of its own, given the processes of each."""
    return len(processes) > 1 and not any(one & other for one, other in itertools.combinations(processes, 2))


def _processes(mesh: Mesh, axis: str) -> list[set[int]]:
    """Of each slice."""
    of_slices = np.moveaxis(mesh.devices, mesh.axis_names.index(axis), 0)
    return [{device.process_index for device in devices.flat} for devices in of_slices]


def _axes(spec: PartitionSpec) -> set[str]:
    return {axis for axes in spec if axes is not None for axis in ((axes,) if isinstance(axes, str) else axes)}


@functools.cache
def _program(mesh: Mesh, axis: str, spec: PartitionSpec, shape: Sequence[int], dtype: np.dtype) -> Compiled:
    """Of [slices, ...] in which all slices but one are zero: that one, on all slices.

    A sum of whole numbers, since one of floating point would turn -0 into 0.
    """
    stacked = PartitionSpec(axis, *spec)

    def of_device(part: jax.Array) -> jax.Array:
        return _from_bits(jax.lax.psum(_bits(part[0]), axis), dtype)

    mapped = jax.shard_map(of_device, mesh=mesh, in_specs=stacked, out_specs=spec, check_vma=False)
    whole = jax.ShapeDtypeStruct((mesh.shape[axis], *shape), dtype, sharding=NamedSharding(mesh, stacked))
    return jax.jit(mapped).lower(whole).compile()


def _bits(x: jax.Array) -> jax.Array:
    """At least 32 bits for each element: not every network adds narrower ones."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint32)
    bits = jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}"))
    return bits.astype(jnp.uint32) if x.dtype.itemsize < 4 else bits


def _from_bits(bits: jax.Array, dtype: np.dtype) -> jax.Array:
    if dtype == jnp.bool_:
        return bits.astype(jnp.bool_)
    narrow = bits.astype(f"uint{8 * dtype.itemsize}")
    return jax.lax.bitcast_convert_type(narrow, dtype)
