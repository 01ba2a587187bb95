"""The weights of `model.custom` as safetensors, by the paths of its parameters.

`model.json` beside them describes how to create the module: reference, arguments, vocabulary and step.
"""

import functools
import json
import logging
import string
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from tpujob_trainer.data.sources.files import open_root
from tpujob_trainer.model.weights.export import collector
from tpujob_trainer.model.weights.safetensors import SafetensorsFolder, shown
from tpujob_trainer.model.weights.shards import Agree, StoredTensor, alone, write_folder
from tpujob_trainer.values.errors import ConfigurationError

logger = logging.getLogger(__name__)

FIELD = "spec.trainer.model.weights"


def load_custom_weights(path: str, abstract: Any, shardings: Any) -> Any:
    """The float32 weights, placed by their shardings. Each process reads the rows of its devices.

    Args:
        path: the folder; local, or a URL (gs://, hf://).
        abstract: nested by the names of modules: shape of each weight.
        shardings: the same nesting: sharding of each weight.

    Raises:
        NotFoundError: the files do not exist.
        ConfigurationError: a tensor is missing, has another shape, or is not one of the model's.
    """
    folder = SafetensorsFolder(open_root(path), FIELD)
    wanted = nnx.traversals.flatten_mapping(abstract)
    names = {parts: ".".join(parts) for parts in wanted}
    if others := sorted({*folder.tensors, *folder.unread} - {*names.values()}):
        raise ConfigurationError(
            f"{FIELD}: {path} has {len(others)} tensors that the model has no parameter for, the first is "
            f"{shown(others[0])}; its parameters are called as in {shown(min(names.values()))}"
        )
    of_leaf = nnx.traversals.flatten_mapping(shardings)
    weights = {}
    for parts, leaf in wanted.items():
        folder.require(names[parts], leaf.shape, "the model's code")
        read = functools.partial(_read, folder, names[parts], leaf.shape)
        weights[parts] = jax.make_array_from_callback(leaf.shape, of_leaf[parts], read)
    logger.info("Weights from %s: tensors=%d", path, len(weights))
    return nnx.traversals.unflatten_mapping(weights)


def _read(folder: SafetensorsFolder, name: str, shape: tuple[int, ...], index: tuple[slice, ...]) -> np.ndarray:
    if not shape:
        return folder.read(name, 0, 1)[0].astype(np.float32)
    first, stop, _ = index[0].indices(shape[0])
    return folder.read(name, first, stop)[:, *index[1:]].astype(np.float32)


DESCRIPTION = "model.json"
_NO_STACK = np.zeros(0, dtype=np.int32)


def export_custom_weights(
    path: str,
    weights: Any,
    model: Mapping[str, Any],
    step: int,
    *,
    dtype: str = "BF16",
    agree: Agree = alone,
) -> None:
    """Writes weights under the paths of their parameters, as in `layers.0.kernel`. All processes must call it.

    Args:
        path: the folder; local, or a URL. Files in it of the same names are overwritten.
        weights: nested by the names of modules, with any sharding.
        model: arguments that the module is created with, by the keys of the configuration or of the shape.
        step: of the weights.
        dtype: of the stored weights: F32, BF16 or F16.
        agree: waits for all processes.

    Raises:
        OSError: the folder cannot be written to; with several processes, what `agree` raises.
    """
    leaves = {".".join(map(str, parts)): leaf for parts, leaf in nnx.traversals.flatten_mapping(weights).items()}
    vocabulary = model.get("vocabSize", model.get("vocab_size"))
    made = {"custom": model["custom"], "arguments": model["arguments"], "vocabSize": vocabulary, "step": step}

    def collect(tensors: list[StoredTensor], writes: bool) -> Iterator[np.ndarray]:
        for tensor in tensors:
            leaf: jax.Array = leaves[tensor.name]
            letters = string.ascii_lowercase[: leaf.ndim]
            whole = collector(letters, " ".join(letters), dtype, leaf.sharding.mesh)
            yield np.asarray(whole(leaf, _NO_STACK).addressable_data(0))

    write_folder(
        path,
        [StoredTensor(name, leaf.shape, dtype) for name, leaf in leaves.items()],
        collect,
        {DESCRIPTION: (json.dumps(made, indent=2) + "\n").encode()},
        agree=agree,
    )
