"""Fingerprints of arrays: exact, computed on the devices, the same for every sharding and number of processes.

A fingerprint is two sums modulo 2³² for each leaf. Each term mixes a word of the leaf's bits with a hash of its
position, so that two swapped words, one flipped bit or a zero of the opposite sign change both sums (except in one case
in 2⁶⁴). Integer addition neither rounds nor depends on the order: each device sums what it holds, and one exchange of a
few words combines the sums.

They are a separate item of Orbax's composite, so that the step is not committed before they are written.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.stages import Compiled

from tpujob_trainer.checkpoint.fingerprint_kernel import sums_of_all

ALGORITHM = "tpujob/1"
"""Stored with the fingerprints, because those of different algorithms cannot be compared."""


def leaf_names(tree: Any) -> list[str]:
    """The path of every leaf, as in "weights/layers/0/q", in the order of the tree's leaves."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return ["/".join(_part(key) for key in path) for path, _ in paths]


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """The fingerprints of one tree."""

    by_leaf: dict[str, str]
    """Path of the leaf → sixteen hexadecimal digits."""
    differing_copies: list[str]
    """Leaves of which devices of this process hold different copies."""


class InFlight:
    """Fingerprints that the devices are computing; the tree may be donated."""

    def __init__(self, names: Sequence[str], parts: Sequence[tuple[Sequence[int], _Program, Any]]) -> None:
        self._names = names
        self._parts = parts

    def wait(self) -> Fingerprints:
        """The fingerprints over all processes. Waits for the devices; any thread may call it."""
        by_leaf: dict[str, str] = {}
        differing = []
        for indices, program, (total, own) in self._parts:
            of_all = np.asarray(total.addressable_data(0))
            of_device = {shard.device: np.asarray(shard.data)[0] for shard in own.addressable_shards}
            for at, index in enumerate(indices):
                by_leaf[self._names[index]] = "{:08x}{:08x}".format(*of_all[at])
                if any((of_device[one][at] != of_device[other][at]).any() for one, other in program.copies[at]):
                    differing.append(self._names[index])
        return Fingerprints({name: by_leaf[name] for name in self._names}, differing)


class Fingerprinter:
    """Computes fingerprints. All processes call it with the same global arrays; compiles once for each form."""

    def __call__(self, tree: Any) -> Fingerprints:
        """The fingerprints over all processes. Waits for the devices."""
        return self.begin(tree).wait()

    def compile(self, abstract: Any) -> None:
        """Compiles for a tree of `jax.ShapeDtypeStruct` with shardings.

        A process that compiled only at the first use would keep the others waiting in a collective.
        """
        for _, program in _programs(jax.tree.leaves(abstract)):
            program.compiled()

    def begin(self, tree: Any) -> InFlight:
        """Starts the computation on the devices, after their present work; does not wait for it."""
        leaves = [_placed(leaf) for leaf in jax.tree.leaves(tree)]
        parts = [
            (indices, program, program.compiled()([leaves[index] for index in indices]))
            for indices, program in _programs(leaves)
        ]
        return InFlight(leaf_names(tree), parts)


def unequal(stored: dict[str, str], found: dict[str, str]) -> list[str]:
    """The leaves whose fingerprints are not the same in both."""
    return sorted(name for name in stored.keys() | found.keys() if stored.get(name) != found.get(name))


class _Program:
    """The program for leaves of given shapes and shardings on a mesh.

    It is written per device (`shard_map`): to partition a global program, the compiler would move the arrays.
    """

    def __init__(self, mesh: Mesh, abstract: Sequence[jax.ShapeDtypeStruct]) -> None:
        """Compiles nothing yet; `abstract` has the shapes, types and shardings of the leaves."""
        self.copies = [_copies(_sharding(leaf), leaf.shape) for leaf in abstract]
        self._abstract = abstract
        self._compiled: Compiled | None = None
        specs = [_sharding(leaf).spec for leaf in abstract]
        names = mesh.axis_names

        def of_device(parts: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
            """The sums of all devices, uint32 [leaves, 2], and of this device only, [1, leaves, 2]."""
            begins = {(part.shape, spec): _begins(part, spec) for part, spec in zip(parts, specs, strict=True)}
            places = [begins[part.shape, spec] for part, spec in zip(parts, specs, strict=True)]
            own = sums_of_all(parts, places)
            counts = jnp.stack([_is_first_copy(spec, names) for spec in specs])
            total = jax.lax.psum(jnp.where(counts[:, None], own, np.uint32(0)), names)
            return total, own[None]

        mapped = jax.shard_map(
            of_device,
            mesh=mesh,
            in_specs=(specs,),
            out_specs=(PartitionSpec(), PartitionSpec(names)),
            check_vma=False,
        )
        self._jitted = jax.jit(mapped)

    def compiled(self) -> Compiled:
        """The compiled program: takes a list of such arrays, returns the sums of all devices and of each one."""
        if self._compiled is None:
            self._compiled = self._jitted.lower(list(self._abstract)).compile()
        return self._compiled


def _programs(leaves: Sequence[jax.Array | jax.ShapeDtypeStruct]) -> list[tuple[list[int], _Program]]:
    """One program for each mesh, with the indices of the leaves on it."""
    by_mesh: dict[Mesh, list[int]] = {}
    for index, leaf in enumerate(leaves):
        by_mesh.setdefault(_sharding(leaf).mesh, []).append(index)
    return [
        (
            indices,
            _program(mesh, tuple((leaves[i].shape, _dtype(leaves[i]), _sharding(leaves[i]).spec) for i in indices)),
        )
        for mesh, indices in by_mesh.items()
    ]


def _dtype(leaf: jax.Array | jax.ShapeDtypeStruct) -> Any:
    """The type on the devices, where a 64-bit NumPy type has 32 bits by default."""
    return jax.dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)


@functools.cache
def _program(mesh: Mesh, leaves: tuple[tuple[tuple[int, ...], Any, PartitionSpec], ...]) -> _Program:
    abstract = [jax.ShapeDtypeStruct(s, dtype, sharding=NamedSharding(mesh, spec)) for s, dtype, spec in leaves]
    return _Program(mesh, abstract)


def _sharding(leaf: jax.Array | jax.ShapeDtypeStruct) -> NamedSharding:
    """The sharding of a leaf on its mesh; a leaf without a mesh gets one of a single device.

    In canonical form: the array that a program made may leave out axes that an abstract one names, and each form would
    be compiled separately.
    """
    if isinstance(leaf.sharding, NamedSharding):
        return _in_one_form(leaf.sharding)
    device = min(leaf.sharding.device_set, key=lambda found: found.id)
    return NamedSharding(Mesh(np.array([device]), "one"), PartitionSpec())


def _placed(leaf: Any) -> jax.Array:
    leaf = jnp.asarray(leaf)
    return leaf if isinstance(leaf.sharding, NamedSharding) else jax.device_put(leaf, _sharding(leaf))


def _copies(sharding: NamedSharding, shape: tuple[int, ...]) -> list[tuple[jax.Device, jax.Device]]:
    """Pairs of devices of this process that hold the same part."""
    first: dict[str, jax.Device] = {}
    pairs = []
    for device, index in sharding.addressable_devices_indices_map(shape).items():
        one = first.setdefault(str(index), device)
        if one != device:
            pairs.append((one, device))
    return pairs


def _divided_over(spec: PartitionSpec) -> list[tuple[str, ...]]:
    """The mesh axes that each dimension is divided over."""
    return [() if axes is None else (axes,) if isinstance(axes, str) else tuple(axes) for axes in spec]


@functools.cache
def _in_one_form(sharding: NamedSharding) -> NamedSharding:
    """The same sharding, without mesh axes of size 1 and without trailing unsharded dimensions."""
    mesh = sharding.mesh
    divided = [tuple(axis for axis in axes if mesh.shape[axis] > 1) for axes in _divided_over(sharding.spec)]
    while divided and not divided[-1]:
        divided.pop()
    return NamedSharding(mesh, PartitionSpec(*(axes or None for axes in divided)))


def _begins(part: jax.Array, spec: PartitionSpec) -> list[jax.Array]:
    """Where in the whole leaf the part of this device begins, for each dimension."""
    found = []
    for dim, axes in enumerate(_divided_over(spec)):
        at = jax.lax.axis_index(axes) if axes else 0
        found.append(jnp.uint32(at) * np.uint32(part.shape[dim]))
    return found


def _is_first_copy(spec: PartitionSpec, names: Sequence[str]) -> jax.Array:
    """Whether no device before this one holds the same part."""
    used = {axis for axes in _divided_over(spec) for axis in axes}
    others = tuple(name for name in names if name not in used)
    return jax.lax.axis_index(others) == 0 if others else jnp.bool_(True)


def _part(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


logger = logging.getLogger(__name__)

FILE = "metadata"


class Handler(ocp.AsyncCheckpointHandler):
    """Writes the fingerprints of `Save`, on process 0."""

    async def async_save(self, directory: epath.Path, args: Save) -> list[ocp.future.Future]:
        """Returns at once; the future completes when the file is written."""
        written = self._write_later(directory, args)
        return [ocp.future.CommitFutureAwaitingContractedSignals(written, name="fingerprints")]

    def save(self, directory: epath.Path, args: Save) -> None:
        """Waits for the devices, and writes the file."""
        found = args.fingerprints.wait()
        if found.differing_copies:
            logger.error("Devices of this process hold different copies of %s", found.differing_copies[0])
        if jax.process_index() == 0:
            text = json.dumps({"algorithm": ALGORITHM, "arrays": found.by_leaf})
            (directory / FILE).write_text(text)

    def restore(self, directory: epath.Path, args: Restore | None = None) -> Any:
        """The content of the file."""
        return json.loads((directory / FILE).read_text())

    async def _write_later(self, directory: epath.Path, args: Save) -> None:
        self.save(directory, args)


@ocp.args.register_with_handler(Handler, for_save=True)
@dataclasses.dataclass
class Save(ocp.args.CheckpointArgs):
    """What to write."""

    fingerprints: InFlight


@ocp.args.register_with_handler(Handler, for_restore=True)
@dataclasses.dataclass
class Restore(ocp.args.CheckpointArgs):
    """Has no arguments; Orbax requires a class for saving and one for restoring."""
