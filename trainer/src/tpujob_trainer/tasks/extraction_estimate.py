"""Estimates of an extraction: upper bounds by arithmetic, and a forecast from some rows of its data. No device."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tpujob_contract.batch_rows import DEFAULT_SEQUENCE_LENGTH
from tpujob_contract.job_facts import ExtractionBounds, ExtractionForecast
from tpujob_trainer import data
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.corpus.extract.config import VALUE_BYTES, ExtractConfig
from tpujob_trainer.corpus.extract.layers import Site, passes, sites_of
from tpujob_trainer.data import inspection
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.read_shape import model_read
from tpujob_trainer.train.arithmetic import BYTES_OF_TOKENIZER, REACH_SECONDS, forward_flops_per_token
from tpujob_trainer.values.errors import ConfigurationError

SCALE_BYTES = 4
"""Size of the scale of each int8 vector."""
TOKEN_BYTES = 4
"""Size of a token ID, which is stored with the values."""
UNCOUNTED_UNIT_BYTES = 1 << 20
"""Unit size for files whose rows are not counted before they are read: the bytes that are read at one place."""


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


def forward_flops(shape: ModelShape, sites: tuple[Site, ...], length: int) -> int:
    """FLOPs for a token, up to the last layer of the sites; without the output matrix."""
    last = max((each.end for each in passes(sites, shape.layers)), default=0)
    logits = 2 * shape.embed_dim * shape.vocab_size
    return (forward_flops_per_token(shape, length) - logits) * last // shape.layers


def rows_flops(lengths: np.ndarray, of_token: Callable[[int], int]) -> int:
    """FLOPs for rows of these lengths; `of_token` returns those of a token in a row of a length."""
    found, counts = np.unique(lengths, return_counts=True)
    return sum(count * length * of_token(length) for length, count in zip(found.tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True)
class ExtractionEstimate:
    """The parts of every estimate of an extraction."""

    config: TrainerConfig
    extract: ExtractConfig
    shape: ModelShape
    sites: tuple[Site, ...]
    length: int
    """Tokens of the longest row."""

    @classmethod
    def of(
        cls, config: TrainerConfig, extract: ExtractConfig, vocabulary: int, reach_seconds: float
    ) -> ExtractionEstimate:
        """The parts for a job; `vocabulary` is the tokenizer's, for a model that does not set its own.

        Storage has `reach_seconds` to answer with the config.json of `model.from`.

        Raises:
            ConfigurationError: the model has no such layer, its fields contradict each other, or config.json needs an
                unsupported feature.
            NotFoundError: config.json cannot be read from here.
        """
        shape = _shape_of(config, vocabulary, reach_seconds)
        length = config.sequence_length or DEFAULT_SEQUENCE_LENGTH
        return cls(config, extract, shape, kept_sites(extract, shape), length)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights in the compute dtype, as a worker on TPUs holds them."""
        return self.shape.num_parameters * (4 if self.config.model.compute_dtype == "float32" else 2)

    @property
    def vector_bytes(self) -> int:
        """Uncompressed bytes of the values at one position."""
        return vector_bytes(self.extract, self.sites, self.shape)

    @property
    def token_flops(self) -> int:
        """FLOPs for a token of a row of full length."""
        return forward_flops(self.shape, self.sites, self.length)

    def vectors(self, tokens: float) -> float:
        """Positions of a row of so many tokens whose values are written."""
        return tokens if self.extract.positions == "all" else 1


def bounds(config: TrainerConfig, extract: ExtractConfig) -> ExtractionBounds:
    """The most that an extraction writes and computes, by arithmetic: no data is read.

    Raises:
        ConfigurationError: as `ExtractionEstimate.of`.
        NotFoundError: as `ExtractionEstimate.of`.
    """
    estimate = ExtractionEstimate.of(config, extract, BYTES_OF_TOKENIZER, REACH_SECONDS)
    length, rows = estimate.length, extract.rows
    row_bytes = int(estimate.vectors(length)) * estimate.vector_bytes + length * TOKEN_BYTES
    return ExtractionBounds(
        parameters=estimate.shape.num_parameters,
        weight_bytes=estimate.weight_bytes,
        sites=len(estimate.sites),
        sequence_length=length,
        rows=rows,
        row_bytes=row_bytes,
        tokens=None if rows is None else rows * length,
        value_bytes=None if rows is None else rows * row_bytes,
        flops=None if rows is None else rows * length * estimate.token_flops,
    )


def forecast(config: TrainerConfig, extract: ExtractConfig, *, workers: int) -> ExtractionForecast:
    """What an extraction reads, computes and writes, from some rows of its data.

    Raises:
        TrainerError: the error that a worker would end with.
    """
    # These import JAX, for which callers that read no data must not wait.
    from tpujob_trainer.corpus.extract import forecast as sampling
    from tpujob_trainer.corpus.extract import units

    tokenizer = data.load_tokenizer(config.data)
    estimate = ExtractionEstimate.of(config, extract, tokenizer.vocab_size, inspection.REACH_SECONDS)
    manifest = data.make_manifest(dataclasses.replace(config.data, unit_bytes=units.UNIT_BYTES))
    if manifest.num_rows is None:
        manifest = data.make_manifest(dataclasses.replace(config.data, unit_bytes=UNCOUNTED_UNIT_BYTES))
    sampled = sampling.sample(
        manifest,
        tokenizer,
        vocab_size=estimate.shape.vocab_size,
        longest=estimate.length,
        is_prompt=False,
        retry_seconds=config.data.retry_seconds,
    )
    rows = extract.rows if manifest.num_rows is None else min(manifest.num_rows, extract.rows or manifest.num_rows)
    if rows is None:
        rows = round(sampled.rows * int(manifest.unit_bytes.sum()) / max(1, sampled.bytes))
    made = sampling.output(
        extract,
        estimate.sites,
        layers=estimate.shape.layers,
        width=estimate.shape.embed_dim,
        sampled=sampled,
        rows=rows,
        unit_rows=_unit_rows(estimate, sampled.mean_length or estimate.length, total=rows, workers=workers),
    )
    per_worker = math.ceil(made.bytes / workers)
    return ExtractionForecast(
        rows=rows,
        rows_used=made.rows,
        rows_sampled=sampled.rows,
        tokens=made.tokens,
        value_bytes=made.value_bytes,
        output_bytes=made.bytes,
        output_bytes_per_worker=per_worker,
        scratch_bytes_per_host=min(extract.scratch_bytes, per_worker),
        flops=made.tokens * estimate.token_flops,
        parameters=estimate.shape.num_parameters,
        weight_bytes=estimate.weight_bytes,
    )


def _unit_rows(estimate: ExtractionEstimate, tokens: float, *, total: int, workers: int) -> int:
    """Rows of a unit, as workers divide `total` rows of so many tokens each."""
    from tpujob_trainer.corpus.extract import units

    return estimate.extract.unit_rows or units.rows_per_unit(
        row_bytes=round(estimate.vector_bytes * estimate.vectors(tokens)),
        shard_bytes=estimate.extract.shard_bytes,
        batch=estimate.config.batch_size or 32,
        filled=tokens / estimate.length,
        total_rows=total,
        workers=workers,
    )


def _shape_of(config: TrainerConfig, vocabulary: int, reach_seconds: float) -> ModelShape:
    if config.model.from_ is not None:
        return model_read(config.model, reach_seconds).shape
    try:
        return config.model.resolve(vocabulary=vocabulary, platform="tpu")
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.model.{error}") from error
