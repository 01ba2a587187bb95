"""The blocks `extract`, `score`, `embed` and `generate` of a trainer configuration."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tpujob_trainer.corpus.extract.layers import Kind
from tpujob_trainer.corpus.workers.work import UnitsConfig
from tpujob_trainer.values.from_mapping import Range

Positions = Literal["all", "last", "mean"]
ValueType = Literal["float16", "bfloat16", "float32", "int8"]
VALUE_BYTES: dict[ValueType, int] = {"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1}


@dataclass(frozen=True, kw_only=True)
class ExtractConfig(UnitsConfig):
    """Activations of a corpus, written as files into the checkpoint directory by independent workers."""

    layers: tuple[int | str, ...]
    """Decoder layers by number from 0, by name as in model.layers.15, or as a range as in 15-18 (both included); or
    embedding, last, norm (what leaves the final norm)."""
    keep: tuple[Kind, ...] = ("residual",)
    """What is kept of each layer: residual (the stream that leaves it), attention, mlp (what these two add to it)."""
    positions: Positions = "all"
    """Of each row: the values at all tokens, at the last one, or their mean over the tokens."""
    dtype: ValueType = "float16"
    """Type of the values in the files. int8 comes with a float32 scale for each vector, in a column of its own;
    bfloat16 is stored as the 16 bits of each value (uint16), since Arrow has no such type."""


@dataclass(frozen=True, kw_only=True)
class ScoreConfig(UnitsConfig):
    """The loss and the perplexity of each row of a corpus."""

    per_token: bool = False
    """Write the loss of every token as well, in the column token_losses."""


@dataclass(frozen=True, kw_only=True)
class EmbedConfig(UnitsConfig):
    """One vector for each row of a corpus."""

    layer: int | str = "norm"
    """Whose residual stream it is made of: as in extract.layers, a single one."""
    positions: Literal["last", "mean"] = "mean"
    """The values at the last token, or their mean over the tokens."""
    normalize: bool = True
    """Scale each vector to length 1."""
    dtype: ValueType = "float32"
    """Type of the values in the files, as in extract.dtype."""


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(UnitsConfig):
    """A continuation of each row of a corpus."""

    tokens: Annotated[int, Range(1, 65536)] = 128
    """Most tokens to write for a row; a text ends earlier with the tokenizer's end of text. Rows of more than
    sequenceLength tokens are left out, and counted."""
    temperature: Annotated[float, Range(0, 10)] = 0.0
    """0 takes the likeliest token each time; larger is more varied. The same seed and row give the same text."""
    stop: tuple[str, ...] = ()
    """A text ends before the first of these, too."""

    def __post_init__(self) -> None:
        if self.format == "safetensors":
            raise ValueError("format: safetensors holds no text; write parquet or arrow")
