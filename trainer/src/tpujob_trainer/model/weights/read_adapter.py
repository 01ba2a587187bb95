"""Reads adapters from the files of PEFT: adapter_config.json and adapter_model.safetensors.

They compute the same as in PEFT: settings of adapter_config.json that mean another computation are refused, and so is a
tensor that belongs to no matrix of the decoder.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tpujob_trainer.data.sources.files import DataRoot, open_root
from tpujob_trainer.model.families.base import Tensor
from tpujob_trainer.model.lora import LORA, LoraModel
from tpujob_trainer.model.weights.adapter import (
    PREFIX,
    WEIGHTS,
    decoder_prefix,
    module_at,
    places_in_stack,
    stored_in,
)
from tpujob_trainer.model.weights.adapter_config import FIELD, check_adapter
from tpujob_trainer.model.weights.fused_experts import container_of, filled_up, pairs_of_experts
from tpujob_trainer.model.weights.safetensors import SafetensorsFolder
from tpujob_trainer.values.errors import ConfigurationError


def read_adapter(path: str, model: LoraModel, source: Mapping[str, Any]) -> Any:
    """The adapters of a model, placed by their shardings; every process reads the whole file, which is small.

    Args:
        path: the folder; local, or a URL (gs://, hf://).
        model: with adapters of the same rank, alpha and targets.
        source: config.json of the decoder's weights.

    Raises:
        NotFoundError: the files do not exist, or cannot be read.
        ConfigurationError: they are damaged, or not of this model.
    """
    ranks = check_adapter(path, model.config)
    root = open_root(path)
    stored = _Stored(root, model.config.rank, ranks)
    adapters: Any = {name: {"a": [], "b": []} for name in model.abstract_weights[LORA]}
    for module, parts in stored_in(model, decoder_prefix(source)).items():
        if parts[0].has_experts and _read_fused(stored, model, container_of(PREFIX + module), adapters):
            continue
        for index in places_in_stack(model, parts[0]):
            for part, (a, b) in zip(parts, stored.pairs(PREFIX + module_at(module, index), parts), strict=True):
                adapters[part.path[-1]]["a"].append(a)
                adapters[part.path[-1]]["b"].append(b)
    stored.refuse_others()

    def placed(abstract: jax.ShapeDtypeStruct, layers: list[np.ndarray], sharding: Any) -> jax.Array:
        whole = np.stack(layers)
        if whole.size != math.prod(abstract.shape):
            raise ConfigurationError(f"{FIELD}: an adapter is {whole.shape}, the model makes it {abstract.shape}")
        whole = whole.reshape(abstract.shape)
        return jax.make_array_from_callback(abstract.shape, sharding, lambda index: whole[index])

    abstract, shardings = model.abstract_weights[LORA], model.shardings[LORA]
    return {
        name: {each: placed(abstract[name][each], found[each], shardings[name][each]) for each in ("a", "b")}
        for name, found in adapters.items()
    }


def _read_fused(stored: _Stored, model: LoraModel, container: str, adapters: Any) -> bool:
    """Whether the experts' adapters are in the form of transformers 5; if so, reads all of them, once."""
    shape = model.shape
    if not stored.has(f"{container.format(layer=0)}.lora_A.weight"):
        return any(stored.was_read(f"{container.format(layer=0)}.lora_{each}.weight") for each in "AB")
    for layer in range(shape.layers):
        pairs = pairs_of_experts(
            stored.optional,
            container.format(layer=layer),
            targets=model.config.targets,
            experts=shape.experts or 0,
            widths=(shape.embed_dim, shape.mlp_dim),
            rank=model.config.rank,
            ranks=stored.ranks,
        )
        if not pairs:
            raise ConfigurationError(f"{FIELD}: {WEIGHTS} has no adapters of {container.format(layer=layer)}")
        for name, pair in pairs.items():
            for each, array in zip("ab", pair, strict=True):
                adapters[name][each].append(array)
    return True


class _Stored:
    """The tensors of a file, each of which is read once."""

    def __init__(self, root: DataRoot, rank: int, ranks: frozenset[int]) -> None:
        self._folder = SafetensorsFolder(root, FIELD, single=WEIGHTS)
        self._rank, self.ranks = rank, ranks
        self._left = {*self._folder.tensors, *self._folder.unread}

    def pairs(self, module: str, parts: list[Tensor]) -> list[tuple[np.ndarray, np.ndarray]]:
        """A `[inputs, rank]` and B `[rank, outputs]` of each of our matrices that are stored in a module.

        Raises:
            ConfigurationError: there is none, or of a rank that does not fit.
        """
        a, b = (self._read(f"{module}.lora_{each}.weight") for each in "AB")
        if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1]:
            raise ConfigurationError(f"{FIELD}: the adapter of {module} is {a.shape} and {b.shape}, which do not fit")
        if parts[0].rows is None:
            columns, rows = [slice(None)], [slice(None)]
        else:
            ends = [*(part.first for part in parts[1:]), parts[0].rows]
            rows = [slice(part.first, end) for part, end in zip(parts, ends, strict=True)]
            columns = self._columns(b, rows)
        narrow = b[rows[0], columns[0]].shape[1]
        if narrow != self._rank and not (narrow < self._rank and narrow in self.ranks):
            raise ConfigurationError(
                f"{FIELD}: the adapter of {module} has rank {a.shape[0]}, which does not divide into adapters of rank "
                f"{self._rank} for {', '.join(part.path[-1] for part in parts)}; write rank: {a.shape[0]}"
            )
        pairs = ((a[column].T, b[row, column].T) for row, column in zip(rows, columns, strict=True))
        return [filled_up(each, self._rank) for each in pairs]

    def _columns(self, b: np.ndarray, rows: list[slice]) -> list[slice]:
        """The columns of B of each of several matrices: all, or, as in an export, as many as the rank."""
        if b.shape[1] == self._rank:
            return [slice(None)] * len(rows)
        apart = [slice(at * self._rank, (at + 1) * self._rank) for at in range(len(rows))]
        outside = b.copy()
        for row, column in zip(rows, apart, strict=True):
            outside[row, column] = 0
        return [slice(None)] * len(rows) if outside.any() else apart

    def has(self, name: str) -> bool:
        """Whether a tensor exists and was not read yet."""
        return name in self._left

    def was_read(self, name: str) -> bool:
        """Whether a tensor exists and was read."""
        return name in self._folder.tensors and name not in self._left

    def optional(self, name: str) -> np.ndarray | None:
        """A tensor; None: there is none of this name, or it was read already."""
        return self._read(name) if self.has(name) else None

    def _read(self, name: str) -> np.ndarray:
        if name not in self._left or name in self._folder.unread:
            raise ConfigurationError(
                f"{FIELD}: {WEIGHTS} has no tensor {name!r} that is read; lora.targets names the matrices that have "
                "adapters in it"
            )
        self._left.discard(name)
        shape = self._folder.tensors[name].shape
        return np.asarray(self._folder.read(name, 0, shape[0] if shape else 1), dtype=np.float32)

    def refuse_others(self) -> None:
        """Raises a ConfigurationError if a tensor was not read: its effect would be missing."""
        if self._left:
            raise ConfigurationError(
                f"{FIELD}: {WEIGHTS} has {sorted(self._left)[0]!r}, which nothing of spec.trainer.lora.targets takes; "
                "name its matrix there if it is one of query, key, value, out, gate, up, down"
            )
