"""Adapters in the layout of PEFT: adapter_config.json and adapter_model.safetensors.

There, A is `[rank, inputs]` and B `[outputs, rank]`, one pair for each layer and matrix; huggingface/peft:
src/peft/utils/save_and_load.py.
"""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import fsspec.core
import jax
import numpy as np

from tpujob_trainer.model.lora import LORA, LoraModel
from tpujob_trainer.model.weights.names import tensors
from tpujob_trainer.model.weights.safetensors import header_of

logger = logging.getLogger(__name__)

_ON_HUB = re.compile(r"hf://(?:models/)?(?P<name>[^/@]+/[^/@]+)(?:@(?P<revision>[^/]+))?/?")
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def export_adapter(path: str, model: LoraModel, weights: Any, *, base: str | None) -> None:
    """Write the adapters of a model. All processes may call it; process 0 writes.

    Args:
        path: the folder; local, or a URL.
        model: with the adapters.
        weights: its weights, of which every process holds the adapters whole.
        base: where the decoder's weights came from, for who loads the adapter.
    """
    if jax.process_index() != 0:
        return
    found = _tensors(model, weights[LORA])
    filesystem, folder = fsspec.core.url_to_fs(path)
    filesystem.makedirs(folder, exist_ok=True)
    header, _ = header_of({name: array.shape for name, array in found.items()}, "F32")
    filesystem.pipe_file(f"{folder}/{WEIGHTS}", header + b"".join(array.tobytes() for array in found.values()))
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        **_base(base),
        "r": model.config.rank,
        "lora_alpha": model.config.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted(_module(name, model).rpartition(".")[2] for name in model.config.targets),
    }
    filesystem.pipe_file(f"{folder}/{CONFIG}", (json.dumps(config, indent=2) + "\n").encode())
    logger.info("Adapter written: %s", path)


def _base(path: str | None) -> dict[str, str | None]:
    """Where PEFT finds the decoder: a name on the hub with its revision, or a folder."""
    name = "base_model_name_or_path"
    if path is None:
        return {name: None}
    if found := _ON_HUB.fullmatch(path):
        return {name: found["name"]} | ({"revision": found["revision"]} if found["revision"] else {})
    if "://" not in path or path.startswith("file://"):
        return {name: str(Path(path.removeprefix("file://")).absolute())}
    logger.warning(
        "PEFT cannot read %s; write a copy's folder, or its name on the hub, as %s of %s", path, name, CONFIG
    )
    return {name: path}


def _tensors(model: LoraModel, adapters: Any) -> dict[str, np.ndarray]:
    made: dict[str, np.ndarray] = {}
    for name in model.config.targets:
        a, b = (np.asarray(adapters[name][part], dtype=np.float32) for part in ("a", "b"))
        for layer in range(model.shape.layers):
            module = f"base_model.model.{_module(name, model).format(layer=layer)}"
            made[f"{module}.lora_A.weight"] = np.ascontiguousarray(a[layer].reshape(-1, a.shape[-1]).T)
            made[f"{module}.lora_B.weight"] = np.ascontiguousarray(b[layer].reshape(b.shape[1], -1).T)
    return made


def _module(name: str, model: LoraModel) -> str:
    """What a matrix is called there, with `{layer}`."""
    return next(
        tensor.name.removesuffix(".weight")
        for tensor in tensors(model.shape)
        if tensor.path[0] == "layers" and tensor.path[-1] == name and tensor.path[1] in ("attention", "mlp")
    )
