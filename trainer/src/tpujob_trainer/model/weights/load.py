"""Loads weights from safetensors; each process reads its part of the bytes.

A stored matrix is divided over all devices by its rows, which are contiguous in the file: each process reads only the
rows of its devices, and the devices exchange them for the parts that they keep. One weight is loaded at a time, of all
layers together.
"""

import concurrent.futures
import functools
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.data.sources.files import open_root
from tpujob_trainer.model.families.base import Tensor
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.companions import FROM as FIELD
from tpujob_trainer.model.weights.companions import read_config
from tpujob_trainer.model.weights.known_keys import EMBEDDING, OUTPUT, tensors
from tpujob_trainer.model.weights.quantized_files import DequantizedFolder
from tpujob_trainer.model.weights.safetensors import SafetensorsFolder
from tpujob_trainer.values.errors import ConfigurationError

logger = logging.getLogger(__name__)

_THREADS = 16
_ROWS = 8192
"""Rows that are read at a time when two tensors are compared."""


def load_weights(path: str, shape: ModelShape, abstract: Any, shardings: Any, *, dtype: str = "float32") -> Any:
    """The weights of a Hugging Face model, placed by their shardings. All processes must call it.

    Args:
        path: the folder; local, or a URL (gs://, hf://).
        shape: from `read_shape`.
        abstract: nested by the names of modules: shape of each weight.
        shardings: the same nesting: sharding of each weight.
        dtype: of the result. Each weight is converted before the next one is read, so that devices never hold all of
            them as float32.

    Raises:
        NotFoundError: the files do not exist.
        ConfigurationError: a tensor is missing or of another shape.
    """
    began = time.monotonic()
    folder = _folder(path)
    weights: dict[str, Any] = {}
    num_bytes = 0
    used: set[str] = set()
    if shape.tie_embeddings:
        _refuse_another_output(folder)
    with concurrent.futures.ThreadPoolExecutor(_THREADS, "weights") as pool:
        for tensor in tensors(shape, prefix=folder.prefix(EMBEDDING), output=folder.named(OUTPUT)):
            kept = _at(abstract, tensor.path)
            placed = _Loader(folder, tensor, shape, kept.shape, pool).load(_at(shardings, tensor.path))
            num_bytes += placed.nbytes
            _put(weights, tensor.path, placed.astype(dtype))
            used.update(_names(tensor, shape))
    _warn_of_others(folder, used)
    logger.info("Weights from %s: bytes=%d seconds=%.1f", path, num_bytes, time.monotonic() - began)
    return weights


def _folder(path: str) -> SafetensorsFolder:
    """The folder's tensors; narrow ones are read as bfloat16."""
    folder = SafetensorsFolder(open_root(path), FIELD)
    given = read_config(path)
    quantization = given.get("quantization_config") or (given.get("text_config") or {}).get("quantization_config")
    return DequantizedFolder(folder, quantization) if quantization else folder


class _Loader:
    """Loads one of our weights, from all tensors that are stacked in it."""

    def __init__(
        self,
        folder: SafetensorsFolder,
        tensor: Tensor,
        shape: ModelShape,
        dims: tuple[int, ...],
        pool: concurrent.futures.Executor,
    ) -> None:
        self._folder, self._tensor, self._pool = folder, tensor, pool
        self.stack = dims[: len(dims) - len(tensor.ours)]
        sizes = dict(zip(tensor.ours, dims[len(self.stack) :], strict=True))
        self.stored = tuple(math.prod(sizes[axis] for axis in group) for group in tensor.theirs.split())
        self._sizes = sizes
        self.names = _names(tensor, shape)
        whole = (tensor.rows or self.stored[0], *self.stored[1:])
        self._dtype = {folder.require(name, whole).dtype for name in self.names}.pop()

    def load(self, sharding: NamedSharding) -> jax.Array:
        """The weight with this sharding."""
        staging = _staging(sharding.mesh, self.stored[0], len(self.stack))
        read = jax.make_array_from_callback((*self.stack, *self.stored), staging, self._part)
        entries = (*sharding.spec, *(None,) * (len(self.stack) + len(self._tensor.ours) - len(sharding.spec)))
        of_axis = dict(zip(self._tensor.ours, entries[len(self.stack) :], strict=True))
        # Devices exchange parts in the stored layout; the rearrangement after that moves nothing between them.
        groups = (of_axis[group[0]] for group in self._tensor.theirs.split())
        exchanged = NamedSharding(staging.mesh, PartitionSpec(*entries[: len(self.stack)], *groups))
        arranged = _arranger(
            self._tensor.ours,
            self._tensor.theirs,
            tuple(self._sizes.items()),
            exchanged,
            NamedSharding(staging.mesh, sharding.spec),
        )(read)
        # The same parts on the same devices, under the mesh of the model.
        parts = [shard.data for shard in arranged.addressable_shards]
        return jax.make_array_from_single_device_arrays(arranged.shape, sharding, parts)

    def _part(self, index: tuple[slice, ...]) -> np.ndarray:
        first, stop, _ = index[len(self.stack)].indices(self.stored[0])
        above = self._tensor.first
        rows = list(self._pool.map(lambda name: self._folder.read(name, above + first, above + stop), self.names))
        return np.stack([part.astype(self._dtype) for part in rows]).reshape(*self.stack, *rows[0].shape)


def _staging(mesh: Mesh, rows: int, stack: int) -> NamedSharding:
    """Sharding of rows over the mesh axes that divide them; whole on each device if none does."""
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
    axes: list[str] = []
    for name, size in mesh.shape.items():
        if rows % (math.prod(mesh.shape[axis] for axis in axes) * size) == 0:
            axes.append(name)
    return NamedSharding(automatic, PartitionSpec(*(None,) * stack, tuple(axes)))


@functools.lru_cache(maxsize=256)
def _arranger(
    ours: str, theirs: str, axes: tuple[tuple[str, int], ...], exchanged: NamedSharding, kept: NamedSharding
) -> Callable[[jax.Array], jax.Array]:
    """Returns a function from `[stack, rows, columns]` to our axes, float32; one program for all equal weights."""
    sizes = dict(axes)

    def arranged(stored: jax.Array) -> jax.Array:
        stored = jax.lax.with_sharding_constraint(stored, exchanged)
        names = theirs.replace(" ", "")
        stack = stored.shape[: stored.ndim - len(theirs.split())]
        split = stored.reshape(*stack, *(sizes[axis] for axis in names))
        order = [len(stack) + names.index(axis) for axis in ours]
        return split.transpose(*range(len(stack)), *order).astype(jnp.float32)

    return jax.jit(arranged, out_shardings=kept)


def _names(tensor: Tensor, shape: ModelShape) -> list[str]:
    """The names of the tensors of all layers and experts, in the order of the stack."""
    layers = tensor.places(shape.layers) if tensor.is_stacked else (0,)
    experts = range(shape.experts or 0) if tensor.has_experts else (0,)
    return [tensor.name.format(layer=layer, expert=expert) for layer in layers for expert in experts]


def _warn_of_others(folder: SafetensorsFolder, used: set[str]) -> None:
    """Warns of tensors in layers that the decoder does not use: transformers ignores them, too."""
    prefix = f"{folder.prefix(EMBEDDING)}layers."
    others = [
        name
        for name in folder.tensors
        if name.startswith(prefix)
        and name not in used
        and not name.endswith(("inv_freq", "_scale_inv", "_blocks", "_scales"))
    ]
    if others:
        logger.warning("Tensors that the model has no use for: count=%d, the first is %s", len(others), others[0])


def _refuse_another_output(folder: SafetensorsFolder) -> None:
    """Refuses files of a tied model with an output matrix that is not the embedding."""
    output = folder.tensors.get(folder.named(OUTPUT))
    if output is None:
        return
    name = f"{folder.prefix(EMBEDDING)}{EMBEDDING}"
    stored = folder.require(name, output.shape)
    for first in range(0, output.shape[0], _ROWS):
        stop = min(first + _ROWS, output.shape[0])
        if not np.array_equal(folder.read(folder.named(OUTPUT), first, stop), folder.read(name, first, stop)):
            raise ConfigurationError(
                f"{FIELD}: {OUTPUT} in {stored.file!r} is not {name}, and config.json has tie_word_embeddings: true; "
                "correct config.json, or remove the tensor"
            )


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    return functools.reduce(lambda node, name: node[name], path, tree)


def _put(tree: dict[str, Any], path: tuple[str, ...], leaf: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = leaf
