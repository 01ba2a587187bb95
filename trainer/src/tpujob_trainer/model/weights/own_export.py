"""The weights of a model of one's own as safetensors, by the paths of its parameters, written by all processes.

`model.json` beside them says what makes the module: reference, arguments, vocabulary and step. It comes last, from
process 0: a folder that has one is whole.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import fsspec.core
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.model.weights.safetensors import DTYPES, INDEX
from tpujob_trainer.model.weights.shards import FILE_BYTES, StoredTensor, in_files, index_of, remove_former, write_file

logger = logging.getLogger(__name__)

DESCRIPTION = "model.json"


def export_own_weights(
    path: str,
    weights: Any,
    description: Mapping[str, Any],
    *,
    dtype: str = "BF16",
    file_bytes: int = FILE_BYTES,
    barrier: Callable[[str], None] = lambda name: None,
) -> None:
    """Write weights under the paths of their parameters, as in `layers.0.kernel`. All processes call it alike.

    Args:
        path: the folder; local, or a URL. Files in it of the same names are written over.
        weights: nested by the names of modules, wherever they lie.
        description: JSON values for `model.json`.
        dtype: of the stored weights: F32, BF16 or F16.
        file_bytes: most bytes of a file, but for a tensor that is larger.
        barrier: waits for all processes; by a name that is used once.

    Raises:
        OSError: the folder cannot be written to.
    """
    began = time.monotonic()
    leaves = {".".join(map(str, parts)): leaf for parts, leaf in nnx.traversals.flatten_mapping(weights).items()}
    filesystem, folder = fsspec.core.url_to_fs(path)
    filesystem.makedirs(folder, exist_ok=True)
    files = in_files([StoredTensor(name, leaf.shape, dtype) for name, leaf in leaves.items()], file_bytes)
    mine = jax.process_index()
    if mine == 0:
        remove_former(filesystem, folder, {*files}, description=DESCRIPTION)
    barrier("export/empty")
    for number, (file, tensors) in enumerate(files.items()):
        content = _collected(leaves, tensors)
        if number % jax.process_count() == mine:
            write_file(filesystem, f"{folder}/{file}", tensors, content)
        else:
            for _ in content:
                pass
    barrier("export/files")
    if mine == 0:
        if len(files) > 1:
            filesystem.pipe_file(f"{folder}/{INDEX}", index_of(files))
        filesystem.pipe_file(f"{folder}/{DESCRIPTION}", (json.dumps(description, indent=2) + "\n").encode())
    barrier("export/done")
    logger.info("Exported to %s: files=%d seconds=%.1f", path, len(files), time.monotonic() - began)


def own_description(model: Mapping[str, Any], step: int) -> dict[str, Any]:
    """The content of `model.json`.

    Args:
        model: the described shape of the model, with keys of the configuration or of the shape.
        step: that the weights are of.
    """
    vocabulary = model.get("vocabSize", model.get("vocab_size"))
    return {"custom": model["custom"], "arguments": model["arguments"], "vocabSize": vocabulary, "step": step}


def _collected(leaves: Mapping[str, jax.Array], tensors: list[StoredTensor]) -> Iterator[np.ndarray]:
    """Each tensor whole, on every host; one at a time."""
    for tensor in tensors:
        leaf, stored = leaves[tensor.name], jnp.dtype(DTYPES[tensor.dtype])
        assert isinstance(leaf.sharding, NamedSharding)
        mesh = leaf.sharding.mesh
        whole = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
        placed = jax.make_array_from_single_device_arrays(
            leaf.shape, NamedSharding(whole, leaf.sharding.spec), [shard.data for shard in leaf.addressable_shards]
        )
        replicated = NamedSharding(whole, PartitionSpec())
        collect = jax.jit(lambda array, stored=stored: array.astype(stored), out_shardings=replicated)
        yield np.asarray(collect(placed).addressable_data(0))
