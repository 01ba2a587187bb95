"""The tensors of a Hugging Face model that are our weights, from its family's table."""

from __future__ import annotations

from collections.abc import Iterator

from tpujob_trainer.model.families import FAMILIES
from tpujob_trainer.model.families.base import Tensor
from tpujob_trainer.model.families.tensors import layer_tensors
from tpujob_trainer.model.shape import ModelShape

EMBEDDING, OUTPUT = "embed_tokens.weight", "lm_head.weight"


def tensors(shape: ModelShape, *, prefix: str = "model.", output: str = OUTPUT) -> Iterator[Tensor]:
    """Yields all weights of a decoder.

    Args:
        shape: of the decoder.
        prefix: of all names except that of the output projection, `model.` in text models.
        output: name of the output projection.
    """
    yield Tensor(("embedding",), f"{prefix}{EMBEDDING}", "VD", "V D")
    yield Tensor(("norm", "scale"), f"{prefix}norm.weight", "D", "D")
    if not shape.tie_embeddings:
        yield Tensor(("output",), output, "DV", "V D")
    of_layer = FAMILIES[shape.family].layer_tensors or layer_tensors
    yield from of_layer(shape, f"{prefix}layers.{{layer}}.")
