"""Which matrices get low-rank adapters, and how wide these are; without JAX."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tpujob_trainer.values.from_mapping import Range

Target = Literal["query", "key", "value", "out", "gate", "up", "down"]
OF_MLP = ("gate", "up", "down")
MLP, EXPERTS = "mlp", "experts"
"""Modules of a layer that have these matrices."""


@dataclass(frozen=True)
class Place:
    """The place of a matrix with adapters."""

    module: str
    reduced: int
    """Number of its dimensions that are summed over, after those of the stack."""

    @property
    def stack(self) -> int:
        """Number of dimensions before these: layers and, if there are any, experts; each has a separate adapter."""
        return 2 if self.module == EXPERTS else 1


def place_of(target: Target, *, has_experts: bool) -> Place:
    """The place of a matrix in the layers' weights."""
    if target in OF_MLP:
        return Place(EXPERTS if has_experts else MLP, 1)
    return Place("attention", 2 if target == "out" else 1)


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
    block, in a mixture of each expert. Default: all."""
