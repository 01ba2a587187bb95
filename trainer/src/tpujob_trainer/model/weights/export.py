"""A model's weights as config.json and safetensors, written by all processes.

Tensors are collected one at a time, of one layer or expert each: no device and no host ever holds the model. Files are
shared out among the processes. The index and config.json come last, from process 0: a folder that has a config.json is
whole.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import fsspec.core
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.model.families.base import Tensor
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.companions import CONFIG, Companions, OtherTensors
from tpujob_trainer.model.weights.config_json import config_json
from tpujob_trainer.model.weights.names import tensors
from tpujob_trainer.model.weights.safetensors import DTYPES, INDEX, SINGLE, header_of

logger = logging.getLogger(__name__)

_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
FILE_BYTES = 50_000_000_000
"""Of one file, as transformers has it."""
TORCH_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@dataclass(frozen=True)
class _Piece:
    """One stored tensor."""

    name: str
    parts: tuple[Tensor, ...]
    """Of our weights, one below the other; none: it is copied from the source."""
    index: tuple[int, ...]
    """Layer and expert, as far as there are."""
    shape: tuple[int, ...]
    dtype: str
    """A key of `DTYPES`."""

    @property
    def num_bytes(self) -> int:
        """Of it, stored."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


def export_weights(
    path: str,
    shape: ModelShape,
    weights: Any,
    *,
    max_positions: int,
    companions: Companions = Companions(),  # noqa: B008 - frozen
    dtype: str = "BF16",
    file_bytes: int = FILE_BYTES,
    barrier: Callable[[str], None] = lambda name: None,
) -> None:
    """Write a model that transformers reads, and `load_weights`. All processes call it alike.

    Args:
        path: the folder; local, or a URL. Files in it of the same names are written over.
        shape: of the decoder.
        weights: nested by the names of modules, wherever they lie.
        max_positions: the longest text that a fresh model was trained on.
        companions: what is written beside the weights.
        dtype: of the stored weights: F32, BF16 or F16.
        file_bytes: most bytes of a file, but for a tensor that is larger.
        barrier: waits for all processes; by a name that is used once.

    Raises:
        ConfigurationError: the family's config.json cannot say the shape.
        OSError: the folder cannot be written to.
    """
    began = time.monotonic()
    made = config_json(
        shape, dtype=TORCH_NAMES[dtype], max_positions=max_positions, source=companions.config, ids=companions.ids
    )
    filesystem, folder = fsspec.core.url_to_fs(path)
    filesystem.makedirs(folder, exist_ok=True)
    others = companions.others
    files = _files([*_pieces(shape, weights, dtype, others), *_copied(others)], file_bytes)
    mine = jax.process_index()
    if mine == 0:
        _remove_former(filesystem, folder, {*files})
    barrier("export/empty")
    for number, (file, pieces) in enumerate(files.items()):
        writes = number % jax.process_count() == mine
        content = _collected(weights, pieces, others if writes else None)
        if writes:
            _write(filesystem, f"{folder}/{file}", pieces, content)
        else:
            for _ in content:
                pass
    barrier("export/files")
    if mine == 0:
        if len(files) > 1:
            filesystem.pipe_file(f"{folder}/{INDEX}", _index(files))
        for name, beside in companions.files.items():
            filesystem.pipe_file(f"{folder}/{name}", beside)
        filesystem.pipe_file(f"{folder}/{CONFIG}", (json.dumps(made, indent=2) + "\n").encode())
    barrier("export/done")
    logger.info("Exported to %s: files=%d seconds=%.1f", path, len(files), time.monotonic() - began)


def _remove_former(filesystem: Any, folder: str, names: set[str]) -> None:
    """What would make of a former export's files and these a model that is neither; config.json first."""
    former = {str(path).rpartition("/")[2] for path in filesystem.ls(folder, detail=False)}
    weights = {name for name in former if name == SINGLE or _SHARD.fullmatch(name)} - names
    for name in [name for name in (CONFIG, INDEX) if name in former] + sorted(weights):
        filesystem.rm(f"{folder}/{name}")


def _copied(others: OtherTensors | None) -> Iterator[_Piece]:
    names = {dtype: name for name, dtype in DTYPES.items()}
    for name in others.names if others is not None else ():
        stored = others.folder.tensors[name]  # type: ignore[union-attr]
        yield _Piece(name, (), (), stored.shape, names[stored.dtype])


def _pieces(shape: ModelShape, weights: Any, dtype: str, others: OtherTensors | None) -> Iterator[_Piece]:
    """All tensors of the decoder, layer after layer."""
    by_name: dict[str, list[Tensor]] = {}
    for tensor in tensors(shape) if others is None else tensors(shape, prefix=others.prefix, output=others.output):
        by_name.setdefault(tensor.name, []).append(tensor)
    named = [tuple(parts) for parts in by_name.values()]
    yield from (_piece(parts, (), weights, dtype) for parts in named if not parts[0].is_stacked)
    for layer in range(shape.layers):
        for parts in named:
            if parts[0].has_experts:
                yield from (_piece(parts, (layer, expert), weights, dtype) for expert in range(shape.experts or 0))
            elif parts[0].is_stacked:
                yield _piece(parts, (layer,), weights, dtype)


def _piece(parts: tuple[Tensor, ...], index: tuple[int, ...], weights: Any, dtype: str) -> _Piece:
    first = parts[0]
    sizes = dict(zip(first.ours, _leaf(weights, first).shape[len(index) :], strict=True))
    stored = [int(np.prod([sizes[axis] for axis in group])) for group in first.theirs.split()]
    layer, expert = (*index, 0, 0)[:2]
    shape = (first.rows or stored[0], *stored[1:])
    return _Piece(first.name.format(layer=layer, expert=expert), parts, index, shape, dtype)


def _files(pieces: list[_Piece], most: int) -> dict[str, list[_Piece]]:
    groups: list[list[_Piece]] = [[]]
    size = 0
    for piece in pieces:
        more = piece.num_bytes
        if groups[-1] and size + more > most:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += more
    if len(groups) == 1:
        return {SINGLE: groups[0]}
    return {f"model-{at + 1:05}-of-{len(groups):05}.safetensors": group for at, group in enumerate(groups)}


def _index(files: Mapping[str, list[_Piece]]) -> bytes:
    pieces = [(file, piece) for file, group in files.items() for piece in group]
    size = sum(piece.num_bytes for _, piece in pieces)
    content = {"metadata": {"total_size": size}, "weight_map": {piece.name: file for file, piece in pieces}}
    return (json.dumps(content, indent=2) + "\n").encode()


def _collected(weights: Any, pieces: list[_Piece], others: OtherTensors | None) -> Iterator[np.ndarray]:
    """Each tensor whole, on every host; one at a time. What is copied is read by who writes it alone."""
    for piece in pieces:
        if not piece.parts:
            if others is not None:
                yield others.folder.read(piece.name, 0, piece.shape[0] if piece.shape else 1)
            continue
        index = np.array(piece.index, dtype=np.int32)
        parts = []
        for tensor in piece.parts:
            leaf = _leaf(weights, tensor)
            collect = _collector(tensor.ours, tensor.theirs, piece.dtype, leaf.sharding.mesh)
            parts.append(np.asarray(collect(leaf, index).addressable_data(0)))
        yield parts[0] if len(parts) == 1 else np.concatenate(parts)


@functools.lru_cache(maxsize=256)
def _collector(ours: str, theirs: str, dtype: str, mesh: Mesh) -> Callable[[jax.Array, np.ndarray], jax.Array]:
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
        # The same parts on the same devices, under a mesh whose axes the compiler divides.
        sharding = NamedSharding(automatic, leaf.sharding.spec)
        parts = [shard.data for shard in leaf.addressable_shards]
        return jitted(jax.make_array_from_single_device_arrays(leaf.shape, sharding, parts), index)

    return call


def _write(filesystem: Any, target: str, pieces: list[_Piece], content: Iterator[np.ndarray]) -> None:
    types = {piece.name: piece.dtype for piece in pieces}
    header, _ = header_of({piece.name: piece.shape for piece in pieces}, types)
    is_local = "file" in ((filesystem.protocol,) if isinstance(filesystem.protocol, str) else filesystem.protocol)
    written = f"{target}.partial" if is_local else target  # an object appears whole
    try:
        with contextlib.closing(filesystem.open(written, "wb")) as file:
            file.write(header)
            for array in content:
                file.write(np.ascontiguousarray(array).tobytes())
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.rm(written)
        raise
    if is_local:
        filesystem.mv(written, target)


def _leaf(weights: Any, tensor: Tensor) -> Any:
    return functools.reduce(lambda node, name: node[name], tensor.path, weights)
