"""Reads the weights of `model.custom` from safetensors, named as its parameters, as `custom_export` writes them."""

from __future__ import annotations

import functools
import logging
from typing import Any

import jax
import numpy as np
from flax import nnx

from tpujob_trainer.data.sources.files import open_root
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.weights.safetensors import SafetensorsFolder, shown

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
