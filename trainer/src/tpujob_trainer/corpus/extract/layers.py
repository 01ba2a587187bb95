"""Layers by number or name, and the passes over the model that keep them. Pure.

Layer i is the i-th decoder layer, from 0: its residual stream is what leaves it, `hidden_states[i + 1]` of
transformers' models, and its attention and MLP outputs are what it adds to the stream.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["residual", "attention", "mlp"]

EMBEDDING, NORM = "embedding", "norm"
"""The stream before layer 0, and after the last layer and the final norm."""

_LAYER = re.compile(r"(?:model\.)?(?:layers\.)?(\d+)")
_LAYERS = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class Site:
    """One place of the model whose values are kept."""

    layer: int
    """-1 for the embedding; the number of layers for the final norm."""
    kind: Kind = "residual"


@dataclass(frozen=True)
class Pass:
    """Layers [first, end), computed one after the other."""

    first: int
    end: int
    keeps: bool
    """Whether the output of each of them is kept."""


def sites_of(layers: Sequence[int | str], kinds: Sequence[Kind], num_layers: int) -> tuple[Site, ...]:
    """The sites that are kept, in the order of the model.

    Args:
        layers: numbers; names as in `model.layers.15`; ranges as in "15-18", both ends included; embedding, last, norm.
        kinds: what is kept of each layer.
        num_layers: of the model.

    Raises:
        ValueError: the model has no such layer; the message begins with the key and the value.
    """
    numbers = sorted({number for layer in layers for number in _numbers(layer, num_layers)})
    return tuple(
        Site(number, kind)
        for number in numbers
        for kind in kinds
        if 0 <= number < num_layers or kind == "residual" or _refuse(number, kind)
    )


def passes(sites: Sequence[Site], num_layers: int) -> tuple[Pass, ...]:
    """The passes over the layers, up to the last one that is kept; for the final norm, over all of them."""
    kept = {site.layer for site in sites if 0 <= site.layer < num_layers}
    end = num_layers if any(site.layer == num_layers for site in sites) else max(kept, default=-1) + 1
    made: list[Pass] = []
    for layer in range(end):
        if made and made[-1].keeps == (layer in kept):
            made[-1] = Pass(made[-1].first, layer + 1, made[-1].keeps)
        else:
            made.append(Pass(layer, layer + 1, layer in kept))
    return tuple(made)


def column_of(site: Site, num_layers: int) -> str:
    """The name of the site's column in the files."""
    if site.layer < 0:
        return EMBEDDING
    return NORM if site.layer == num_layers else f"layer_{site.layer}_{site.kind}"


def _numbers(layer: int | str, num_layers: int) -> range:
    if layer == EMBEDDING:
        return range(-1, 0)
    if layer == NORM:
        return range(num_layers, num_layers + 1)
    if layer == "last":
        return range(num_layers - 1, num_layers)
    text = str(layer)
    if several := _LAYERS.fullmatch(text):
        first, last = int(several[1]), int(several[2])
    elif one := _LAYER.fullmatch(text):
        first = last = int(one[1])
    else:
        raise ValueError(
            f"layers: {layer!r} is not a layer; write a number, a range as in 15-18, embedding, last or norm"
        )
    if not first <= last < num_layers:
        raise ValueError(f"layers: {layer!r} is not in the model, which has layers 0 to {num_layers - 1}")
    return range(first, last + 1)


def _refuse(number: int, kind: Kind) -> bool:
    name = EMBEDDING if number < 0 else NORM
    raise ValueError(f"keep: {kind!r} is a part of a layer, and {name} has none; leave {name} out of layers")
