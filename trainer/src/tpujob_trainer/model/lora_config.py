"""Which matrices get low-rank adapters, and how wide these are; without JAX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from tpujob_trainer.parsing.from_mapping import Range

Target = Literal["query", "key", "value", "out", "gate", "up", "down"]
PLACES: dict[str, tuple[str, int]] = {
    "query": ("attention", 1),
    "key": ("attention", 1),
    "value": ("attention", 1),
    "out": ("attention", 2),
    "gate": ("mlp", 1),
    "up": ("mlp", 1),
    "down": ("mlp", 1),
}
"""Of each matrix: its module, and how many of its dimensions behind the layers are summed over."""


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    """Train adapters and leave the weights as they are. With model.from."""

    from_: str | None = None
    """Folder of adapters in PEFT's layout (adapter_config.json and adapter_model.safetensors) to go on from: local,
    gs:// or hf://. rank, alpha and targets are those of its files. Default: new adapters, which change nothing yet."""
    rank: Annotated[int, Range(1, 1024)] = 16
    """Width of the two matrices of an adapter."""
    alpha: Annotated[float, Range(1e-3, 1e6)] = 32.0
    """The adapters' product counts alpha / rank times."""
    targets: tuple[Target, ...] = ("query", "key", "value", "out", "gate", "up", "down")
    """The matrices of each layer that have one: query, key, value, out of attention; gate, up, down of the feed-forward
    block, which mixtures of experts have no adapter for. Default: all."""
