"""Upper bounds of an extraction, by arithmetic only: tokens, bytes of values, FLOPs. No data is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tpujob_contract.batch_rows import DEFAULT_SEQUENCE_LENGTH
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.corpus.extract.config import VALUE_BYTES, ExtractConfig
from tpujob_trainer.corpus.extract.layers import Site, passes, sites_of
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.train.arithmetic import BYTES_OF_TOKENIZER, REACH_SECONDS, forward_flops_per_token

SCALE_BYTES = 4
"""Size of the scale of each int8 vector."""
TOKEN_BYTES = 4
"""Size of a token ID, which is stored with the values."""


def kept_sites(extract: ExtractConfig, shape: ModelShape) -> tuple[Site, ...]:
    """The sites of a model whose values are written.

    Raises:
        ConfigurationError: the model has no such layer.
    """
    try:
        return sites_of(extract.layers, extract.keep, shape.layers)
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.extract.{error}") from error


def vector_bytes(extract: ExtractConfig, sites: tuple[Site, ...], shape: ModelShape) -> int:
    """Uncompressed bytes of the values of all sites at one position."""
    scale = SCALE_BYTES if extract.dtype == "int8" else 0
    return len(sites) * (shape.embed_dim * VALUE_BYTES[extract.dtype] + scale)


def weight_bytes(config: TrainerConfig, shape: ModelShape) -> int:
    """Bytes of the weights in the compute dtype, as a worker on TPUs holds them."""
    return shape.num_parameters * (4 if config.model.compute_dtype == "float32" else 2)


def forward_flops(shape: ModelShape, sites: tuple[Site, ...], length: int) -> int:
    """FLOPs for a token, up to the last layer of the sites; without the output matrix."""
    last = max((each.end for each in passes(sites, shape.layers)), default=0)
    logits = 2 * shape.embed_dim * shape.vocab_size
    return (forward_flops_per_token(shape, length) - logits) * last // shape.layers


def rows_flops(lengths: np.ndarray, of_token: Callable[[int], int]) -> int:
    """FLOPs for rows of these lengths; `of_token` returns those of a token in a row of a length."""
    found, counts = np.unique(lengths, return_counts=True)
    return sum(count * length * of_token(length) for length, count in zip(found.tolist(), counts.tolist(), strict=True))


def bounds(config: TrainerConfig) -> dict[str, Any]:
    """The most that an extraction writes and computes, as JSON values; only per row if `extract.rows` is not set.

    Raises:
        ConfigurationError: the block is of no extraction, the model has no such layer, or config.json of `model.from`
            needs an unsupported feature.
        NotFoundError: that config.json cannot be read from here.
    """
    extract = config.extract
    if extract is None:
        raise ConfigurationError(f"{BLOCK}.extract: is missing; only an extraction has these bounds")
    shape = shape_of(config, BYTES_OF_TOKENIZER)
    sites = kept_sites(extract, shape)
    length = config.sequence_length or DEFAULT_SEQUENCE_LENGTH
    vectors = length if extract.positions == "all" else 1
    row_bytes = vectors * vector_bytes(extract, sites, shape) + length * TOKEN_BYTES
    rows = extract.rows
    return {
        "parameters": shape.num_parameters,
        "weight_bytes": weight_bytes(config, shape),
        "sites": len(sites),
        "sequence_length": length,
        "rows": rows,
        "row_bytes": row_bytes,
        "tokens": None if rows is None else rows * length,
        "value_bytes": None if rows is None else rows * row_bytes,
        "flops": None if rows is None else rows * length * forward_flops(shape, sites, length),
    }


def shape_of(config: TrainerConfig, vocabulary: int, reach_seconds: float = REACH_SECONDS) -> ModelShape:
    """The shape of the model; `vocabulary` is the tokenizer's, for a model that does not set its own.

    Storage has `reach_seconds` to answer.

    Raises:
        ConfigurationError: its fields contradict each other, or config.json needs an unsupported feature.
        NotFoundError: config.json cannot be read from here.
    """
    if config.model.from_ is not None:
        from tpujob_trainer.model.weights.load import model_read

        return model_read(config.model, reach_seconds).shape
    try:
        return config.model.resolve(vocabulary=vocabulary, platform="tpu")
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.model.{error}") from error
