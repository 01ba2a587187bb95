"""Reads a checkpoint with the processes of one slice, and copies it from its devices to those of the other slices.

All slices hold the same arrays. If every slice read them, a bucket would serve the state once per slice; here it serves
it once, and the data-centre network carries the rest: each device gets the shard of the device at its position in the
reading slice.

Orbax's `SingleReplicaArrayHandler` does the same, but if a process fails to read, the others start the exchange anyway
and wait for it. Here all processes vote between reading and the exchange.
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
    """The plan to read trees of given shapes and shardings with one slice, on a mesh with an axis of slices."""

    def __init__(self, abstract: Any, mesh: Mesh, axis: str, *, process_id: int, reads: int = 0) -> None:
        """Compiles nothing yet. `one_slice` has checked that the plan is possible; `reads` is the reading slice."""
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
        """The same plan, with another reading slice."""
        return OneSlice(self._abstract, self._mesh, self._axis, process_id=self._process_id, reads=index)

    def abstract(self) -> Any:
        """The same tree, sharded over the devices of the reading slice only."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(
                leaf.shape, leaf.dtype, sharding=NamedSharding(self._read_mesh, leaf.sharding.spec)
            ),
            self._abstract,
        )

    def compile(self) -> None:
        """Compiles the exchange, so that no process waits in it for another one to compile."""
        for leaf in jax.tree.leaves(self._abstract):
            self._program(leaf)

    def broadcast_to_slices(self, tree: Any) -> Any:
        """The arrays on all slices, bit for bit. All processes call it; those that did not read pass None.

        It copies one leaf at a time, so that memory holds at most two copies of a leaf. `tree` is deleted.
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
        """The sharding of the stacked leaves of all slices, [slices, ...]."""
        return NamedSharding(self._mesh, PartitionSpec(self._axis, *sharding.spec))

    def _program(self, leaf: jax.ShapeDtypeStruct) -> Compiled:
        return _program(self._mesh, self._axis, leaf.sharding.spec, leaf.shape, np.dtype(leaf.dtype))


def one_slice(abstract: Any, axis: str | None, *, process_id: int) -> OneSlice | None:
    """How to read with one slice; None: every process has to read its own shards.

    The latter is the case if there is only one slice, if a process has devices of several slices, if slices hold
    different parts of an array, or if the leaves are not all on one mesh.

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
    """Whether there are several slices and no process belongs to two of them, given the processes of each slice."""
    return len(processes) > 1 and not any(one & other for one, other in itertools.combinations(processes, 2))


def _processes(mesh: Mesh, axis: str) -> list[set[int]]:
    """The processes of each slice."""
    of_slices = np.moveaxis(mesh.devices, mesh.axis_names.index(axis), 0)
    return [{device.process_index for device in devices.flat} for devices in of_slices]


def _axes(spec: PartitionSpec) -> set[str]:
    return {axis for axes in spec if axes is not None for axis in ((axes,) if isinstance(axes, str) else axes)}


@functools.cache
def _program(mesh: Mesh, axis: str, spec: PartitionSpec, shape: Sequence[int], dtype: np.dtype) -> Compiled:
    """The program that takes [slices, ...], zero in all slices except one, and returns that one on all slices.

    It sums integers, because a floating-point sum would turn -0 into 0.
    """
    stacked = PartitionSpec(axis, *spec)

    def of_device(part: jax.Array) -> jax.Array:
        return _from_bits(jax.lax.psum(_bits(part[0]), axis), dtype)

    mapped = jax.shard_map(of_device, mesh=mesh, in_specs=stacked, out_specs=spec, check_vma=False)
    whole = jax.ShapeDtypeStruct((mesh.shape[axis], *shape), dtype, sharding=NamedSharding(mesh, stacked))
    return jax.jit(mapped).lower(whole).compile()


def _bits(x: jax.Array) -> jax.Array:
    """The bits as integers of at least 32 bits: not every network adds narrower ones."""
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint32)
    bits = jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}"))
    return bits.astype(jnp.uint32) if x.dtype.itemsize < 4 else bits


def _from_bits(bits: jax.Array, dtype: np.dtype) -> jax.Array:
    if dtype == jnp.bool_:
        return bits.astype(jnp.bool_)
    narrow = bits.astype(f"uint{8 * dtype.itemsize}")
    return jax.lax.bitcast_convert_type(narrow, dtype)
