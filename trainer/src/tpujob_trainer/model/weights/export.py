"""Writes a model's weights as config.json and safetensors, from all processes.

Tensors are collected one at a time, of one layer or expert each: no device and no host ever holds the whole model.
Files are distributed among the processes. Process 0 writes the index and config.json last: a folder with a config.json
is complete.
"""

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.model.families.base import Tensor
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.companions import CONFIG, Companions, OtherTensors
from tpujob_trainer.model.weights.config_json import config_json
from tpujob_trainer.model.weights.known_keys import tensors
from tpujob_trainer.model.weights.safetensors import DTYPES, NUMPY_NAMES
from tpujob_trainer.model.weights.shards import FILE_BYTES, Agree, StoredTensor, alone, write_folder


@dataclass(frozen=True)
class _Piece(StoredTensor):
    """A stored tensor, and the weights that it consists of."""

    parts: tuple[Tensor, ...] = ()
    """Of our weights, one below the other; empty: it is copied from the source."""
    index: tuple[int, ...] = ()
    """Place in the stack, and expert, if the weights have these dimensions."""


def export_weights(
    path: str,
    shape: ModelShape,
    weights: Any,
    *,
    max_positions: int,
    companions: Companions = Companions(),  # noqa: B008 - frozen
    dtype: str = "BF16",
    file_bytes: int = FILE_BYTES,
    agree: Agree = alone,
) -> None:
    """Writes a model that transformers and `load_weights` can read. All processes must call it.

    Args:
        path: the folder; local, or a URL. Files in it of the same names are overwritten.
        shape: of the decoder.
        weights: nested by the names of modules, with any sharding.
        max_positions: the longest text that a fresh model was trained on.
        companions: files beside the weights.
        dtype: of the stored weights: F32, BF16 or F16.
        file_bytes: most bytes of a file, unless it has a single larger tensor.
        agree: waits for all processes.

    Raises:
        ConfigurationError: the family's config.json cannot express the shape.
        OSError: the folder cannot be written to; with several processes, what `agree` raises.
    """
    made = config_json(
        shape, dtype=NUMPY_NAMES[dtype], max_positions=max_positions, source=companions.config, ids=companions.ids
    )
    others = companions.others
    write_folder(
        path,
        [*_pieces(shape, weights, dtype, others), *_copied(others)],
        lambda pieces, writes: _collected(weights, pieces, others if writes else None),
        {**companions.files, CONFIG: (json.dumps(made, indent=2) + "\n").encode()},
        file_bytes=file_bytes,
        agree=agree,
    )


def _copied(others: OtherTensors | None) -> Iterator[_Piece]:
    names = {dtype: name for name, dtype in DTYPES.items()}
    for name in others.names if others is not None else ():
        stored = others.folder.tensors[name]  # type: ignore[union-attr]
        yield _Piece(name, stored.shape, names[stored.dtype])


def _pieces(shape: ModelShape, weights: Any, dtype: str, others: OtherTensors | None) -> Iterator[_Piece]:
    """Yields all tensors of the decoder, layer after layer."""
    by_name: dict[tuple[str, range | None], list[Tensor]] = {}
    for tensor in tensors(shape) if others is None else tensors(shape, prefix=others.prefix, output=others.output):
        by_name.setdefault((tensor.name, tensor.layers), []).append(tensor)
    named = [tuple(parts) for parts in by_name.values()]
    yield from (_piece(parts, (), weights, dtype) for parts in named if not parts[0].is_stacked)
    for layer in range(shape.layers):
        for parts in named:
            places = parts[0].places(shape.layers)
            if not parts[0].is_stacked or layer not in places:
                continue
            at = places.index(layer)
            if parts[0].has_experts:
                yield from (_piece(parts, (at, expert), weights, dtype) for expert in range(shape.experts or 0))
            else:
                yield _piece(parts, (at,), weights, dtype)


def _piece(parts: tuple[Tensor, ...], index: tuple[int, ...], weights: Any, dtype: str) -> _Piece:
    """The stored tensor of these parts; `index` as in `_Piece`."""
    first = parts[0]
    dtype = "F32" if first.is_wide else dtype
    sizes = dict(zip(first.ours, _leaf(weights, first).shape[len(index) :], strict=True))
    stored = [int(np.prod([sizes[axis] for axis in group])) for group in first.theirs.split()]
    place, expert = (*index, 0, 0)[:2]
    layer = place if first.layers is None else first.layers[place]
    shape = (first.rows or stored[0], *stored[1:])
    return _Piece(first.name.format(layer=layer, expert=expert), shape, dtype, parts, index)


def _collected(weights: Any, pieces: list[_Piece], others: OtherTensors | None) -> Iterator[np.ndarray]:
    """Yields tensors whole, on every host, one at a time. Copied ones are read only by the process that writes them."""
    for piece in pieces:
        if not piece.parts:
            if others is not None:
                yield others.folder.read(piece.name, 0, piece.shape[0] if piece.shape else 1)
            continue
        index = np.array(piece.index, dtype=np.int32)
        parts = []
        for tensor in piece.parts:
            leaf = _leaf(weights, tensor)
            collect = collector(tensor.ours, tensor.theirs, piece.dtype, leaf.sharding.mesh)
            parts.append(np.asarray(collect(leaf, index).addressable_data(0)))
        yield parts[0] if len(parts) == 1 else np.concatenate(parts)


@functools.lru_cache(maxsize=256)
def collector(ours: str, theirs: str, dtype: str, mesh: Mesh) -> Callable[[jax.Array, np.ndarray], jax.Array]:
    """Returns a function from a weight, divided over a mesh, to a stored tensor that is whole on every device.

    Args:
        ours: a letter for each dimension of the weight, except those of its stack.
        theirs: the same letters in the order of the stored tensor, its dimensions separated by spaces.
        dtype: of the stored tensor, a key of `DTYPES`.
        mesh: of the weight.

    Returns:
        a function of the weight and of its place in the stack, int32, which all processes must call.
    """
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
    whole = NamedSharding(automatic, PartitionSpec())

    def collect(leaf: jax.Array, index: jax.Array) -> jax.Array:
        for at in range(leaf.ndim - len(ours)):
            leaf = jax.lax.dynamic_index_in_dim(leaf, index[at], keepdims=False)
        sizes = dict(zip(ours, leaf.shape, strict=True))
        groups = theirs.split()
        turned = leaf.transpose(*(ours.index(axis) for axis in theirs.replace(" ", "")))
        return turned.reshape([int(np.prod([sizes[axis] for axis in group])) for group in groups]).astype(
            jnp.dtype(DTYPES[dtype])
        )

    jitted = jax.jit(collect, out_shardings=whole)

    def call(leaf: jax.Array, index: np.ndarray) -> jax.Array:
        # The same parts on the same devices, under a mesh with axes of type `Auto`.
        sharding = NamedSharding(automatic, leaf.sharding.spec)
        parts = [shard.data for shard in leaf.addressable_shards]
        return jitted(jax.make_array_from_single_device_arrays(leaf.shape, sharding, parts), index)

    return call


def _leaf(weights: Any, tensor: Tensor) -> Any:
    return functools.reduce(lambda node, name: node[name], tensor.path, weights)
