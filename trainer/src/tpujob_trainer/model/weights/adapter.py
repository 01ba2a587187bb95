"""Adapters in the layout of PEFT: adapter_config.json and adapter_model.safetensors.

In them, A is `[rank, inputs]` and B `[outputs, rank]`, one pair for each layer and matrix; huggingface/peft:
src/peft/utils/save_and_load.py.
"""

import itertools
import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tpujob_trainer.model.families.base import Tensor
from tpujob_trainer.model.lora import LORA, LoraModel
from tpujob_trainer.model.lora_config import EXPERTS, MLP
from tpujob_trainer.model.weights.adapter_config import ADAPTER_CONFIG
from tpujob_trainer.model.weights.companions import Companions
from tpujob_trainer.model.weights.known_keys import tensors
from tpujob_trainer.model.weights.safetensors import header_of
from tpujob_trainer.storage.filesystems import located

logger = logging.getLogger(__name__)

_ON_HUB = re.compile(r"hf://(?:models/)?(?P<name>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?/?")
WEIGHTS = "adapter_model.safetensors"
MODULES = ("attention", MLP, EXPERTS)
"""Modules of a layer whose matrices may have adapters."""
PREFIX = "base_model.model."
"""Prefix of a module's name."""
OF_TEXT, OF_IMAGES = "model.", "model.language_model."
"""Prefixes of the decoder in transformers (4.52 and later): of a text model, and with images, where files differ."""


def export_adapter(
    path: str,
    model: LoraModel,
    weights: Any,
    *,
    base: str | None,
    companions: Companions = Companions(),  # noqa: B008 - frozen
) -> None:
    """Writes the adapters of a model. All processes may call it; process 0 writes.

    Args:
        path: the folder; local, or a URL.
        model: with the adapters.
        weights: its weights, of which every process holds the adapters whole.
        base: source of the decoder's weights, for those who load the adapter.
        companions: files beside the weights; their config.json is that of the base model and is not written.
    """
    if jax.process_index() != 0:
        return
    prefix = decoder_prefix(companions.config or {})
    modules = stored_in(model, prefix)
    found = _tensors(model, weights[LORA], modules)
    filesystem, folder = located(path)
    filesystem.makedirs(folder, exist_ok=True)
    header, _ = header_of({name: array.shape for name, array in found.items()}, "F32")
    for name, content in companions.files.items():
        filesystem.pipe_file(f"{folder}/{name}", content)
    filesystem.pipe_file(f"{folder}/{WEIGHTS}", header + b"".join(array.tobytes() for array in found.values()))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        **_base(base),
        "r": model.config.rank,
        "lora_alpha": model.config.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": _targets(modules, prefix),
        **_of_fused(model, modules),
    }
    filesystem.pipe_file(f"{folder}/{ADAPTER_CONFIG}", (json.dumps(config, indent=2) + "\n").encode())
    logger.info("Adapter written: %s", path)


def _base(path: str | None) -> dict[str, str | None]:
    """The keys with which PEFT finds the decoder: a name on the hub with its revision, or a folder."""
    name = "base_model_name_or_path"
    if path is None:
        return {name: None}
    if found := _ON_HUB.fullmatch(path):
        return {name: found["name"]} | ({"revision": found["revision"]} if found["revision"] else {})
    if "://" not in path or path.startswith("file://"):
        return {name: str(Path(path.removeprefix("file://")).absolute())}
    logger.warning(
        "PEFT cannot read %s; write a copy's folder, or its name on the hub, as %s of %s", path, name, ADAPTER_CONFIG
    )
    return {name: path}


def _targets(modules: Mapping[str, list[Tensor]], prefix: str) -> list[str] | str:
    """The names of modules, or a pattern of full names if other parts of the model have modules of these names."""
    names = sorted(name.rpartition(".")[2] for name in modules)
    return names if prefix == OF_TEXT else rf"{re.escape(prefix)}.*\.({'|'.join(names)})"


def decoder_prefix(source: Mapping[str, Any]) -> str:
    """The prefix of the decoder in transformers, for a model with this config.json."""
    return OF_IMAGES if "text_config" in source else OF_TEXT


def stored_in(model: LoraModel, prefix: str) -> dict[str, list[Tensor]]:
    """Our matrices with adapters, in order, by the stored name of their module, with `{layer}` and `{expert}`."""
    found: dict[str, list[Tensor]] = {}
    for tensor in tensors(model.shape, prefix=prefix):
        is_matrix = tensor.path[0] == "layers" and len(tensor.path) == 3 and tensor.path[1] in MODULES
        if is_matrix and tensor.path[-1] in model.config.targets:
            found.setdefault(tensor.name.removesuffix(".weight"), []).append(tensor)
    return found


def _tensors(model: LoraModel, adapters: Any, modules: Mapping[str, list[Tensor]]) -> dict[str, np.ndarray]:
    """A and B of each module; if it has several matrices, theirs side by side, each B in its own rows."""
    made: dict[str, np.ndarray] = {}
    rank = model.config.rank
    for module, parts in modules.items():
        pairs = [[np.asarray(adapters[part.path[-1]][each], dtype=np.float32) for each in "ab"] for part in parts]
        for index in places_in_stack(model, parts[0]):
            flat = [(a[index].reshape(-1, rank).T, b[index].reshape(rank, -1).T) for a, b in pairs]
            rows = parts[0].rows or flat[0][1].shape[0]
            spread = np.zeros((rows, rank * len(parts)), np.float32)
            for at, (part, (_, b)) in enumerate(zip(parts, flat, strict=True)):
                spread[part.first : part.first + b.shape[0], at * rank : (at + 1) * rank] = b
            name = PREFIX + module_at(module, index)
            made[f"{name}.lora_A.weight"] = np.ascontiguousarray(np.concatenate([a for a, _ in flat]))
            made[f"{name}.lora_B.weight"] = spread
    return made


def places_in_stack(model: LoraModel, tensor: Tensor) -> Iterator[tuple[int, ...]]:
    """All indices of a layer and, if each has a separate adapter, an expert."""
    experts = (range(model.shape.experts or 0),) if tensor.has_experts else ()
    return itertools.product(range(model.shape.layers), *experts)


def module_at(module: str, index: tuple[int, ...]) -> str:
    """The name of a module with the numbers of its layer and expert."""
    layer, expert = (*index, 0)[:2]
    return module.format(layer=layer, expert=expert)


def _of_fused(model: LoraModel, modules: Mapping[str, list[Tensor]]) -> dict[str, Any]:
    """The rank and alpha of modules that have several matrices: the quotient stays the same."""
    wide = {module.rpartition(".")[2]: len(parts) for module, parts in modules.items() if len(parts) > 1}
    if not wide:
        return {}
    return {
        "rank_pattern": {name: count * model.config.rank for name, count in wide.items()},
        "alpha_pattern": {name: count * model.config.alpha for name, count in wide.items()},
    }
