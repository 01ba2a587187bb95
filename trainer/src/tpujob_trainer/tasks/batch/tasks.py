"""The tasks on a corpus: the block of each, its computation for a batch, and its columns."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpujob_trainer import data
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.corpus.extract.batched import Arrange, Flops
from tpujob_trainer.corpus.extract.completions import completions_program, readable
from tpujob_trainer.corpus.extract.config import VALUE_BYTES, EmbedConfig, GenerateConfig, ScoreConfig
from tpujob_trainer.corpus.extract.layers import column_of, sites_of
from tpujob_trainer.corpus.extract.programs import Program, activations_program, embeddings_program, scores_program
from tpujob_trainer.corpus.workers.work import UnitsConfig
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.companions import text_ends
from tpujob_trainer.tasks.extraction_estimate import forward_flops, kept_sites, rows_flops, vector_bytes
from tpujob_trainer.train.arithmetic import forward_flops_per_token
from tpujob_trainer.values.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class BatchTask:
    """A task of independent workers."""

    name: str
    """The value of `trainer.task`, which is also the name of the block."""
    units: UnitsConfig
    """The block."""
    described: Mapping[str, Any]
    """The fields of the block that determine the values, by key."""
    row_bytes: int
    """Bytes written for a row, whatever its length."""
    token_bytes: int = 0
    """Bytes written in addition for each of its tokens."""
    make: Callable[[Model, Weights], Program]
    flops: Flops | None = None
    """FLOPs of rows; None: unknown before they are computed."""
    arrange: Arrange = dict
    is_packed: bool = True
    """Whether several rows are computed in one sequence."""
    is_cut: bool = True
    """Whether rows that are too long are cut off; otherwise they are left out."""
    is_prompt: bool = False
    """Whether the rows are prompts: a conversation ends where its last answer begins."""

    @property
    def field(self) -> str:
        """The path of the block in the job, for messages."""
        return f"{BLOCK}.{self.name}"


NUMBERS_BYTES = 12
"""Bytes of loss, perplexity and token count of a row."""


def score_task(config: TrainerConfig, shape: ModelShape, tokenizer: data.Tokenizer, length: int) -> BatchTask:
    """The task of the block `score`."""
    block = config.score or ScoreConfig()
    return BatchTask(
        name="score",
        units=block,
        described={"perToken": block.per_token},
        row_bytes=NUMBERS_BYTES,
        token_bytes=4 * (1 + block.per_token),
        flops=lambda lengths: rows_flops(lengths, lambda length: forward_flops_per_token(shape, length)),
        make=lambda model, weights: scores_program(model, weights, per_token=block.per_token),
    )


def extract_task(config: TrainerConfig, shape: ModelShape, tokenizer: data.Tokenizer, length: int) -> BatchTask:
    """The task of the block `extract`.

    Raises:
        ConfigurationError: the model has no such layer.
    """
    block = config.extract
    assert block is not None
    sites = kept_sites(block, shape)
    return BatchTask(
        name="extract",
        units=block,
        described={
            "layers": [column_of(site, shape.layers) for site in sites],
            "positions": block.positions,
            "dtype": block.dtype,
        },
        row_bytes=0 if block.positions == "all" else vector_bytes(block, sites, shape),
        token_bytes=vector_bytes(block, sites, shape) if block.positions == "all" else 0,
        flops=lambda lengths: rows_flops(lengths, lambda length: forward_flops(shape, sites, length)),
        make=lambda model, weights: activations_program(
            model, weights, sites, positions=block.positions, dtype=block.dtype
        ),
    )


def embed_task(config: TrainerConfig, shape: ModelShape, tokenizer: data.Tokenizer, length: int) -> BatchTask:
    """The task of the block `embed`.

    Raises:
        ConfigurationError: the model has no such layer, or several are named.
    """
    block = config.embed or EmbedConfig()
    try:
        sites = sites_of([block.layer], ["residual"], shape.layers)
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.embed.{str(error).replace('layers:', 'layer:', 1)}") from error
    if len(sites) > 1:
        raise ConfigurationError(f"{BLOCK}.embed.layer: {block.layer!r} are {len(sites)} layers; name one")
    return BatchTask(
        name="embed",
        units=block,
        described={
            "layer": column_of(sites[0], shape.layers),
            "positions": block.positions,
            "normalize": block.normalize,
            "dtype": block.dtype,
        },
        row_bytes=shape.embed_dim * VALUE_BYTES[block.dtype],
        token_bytes=4,
        flops=lambda lengths: rows_flops(lengths, lambda length: forward_flops(shape, sites, length)),
        make=lambda model, weights: embeddings_program(
            model, weights, sites[0], positions=block.positions, normalize=block.normalize, dtype=block.dtype
        ),
    )


def generate_task(config: TrainerConfig, shape: ModelShape, tokenizer: data.Tokenizer, length: int) -> BatchTask:
    """The task of the block `generate`.

    Raises:
        NotFoundError: the model's files do not exist, or cannot be read.
        ConfigurationError: one of them is damaged.
    """
    block = config.generate or GenerateConfig()
    return BatchTask(
        name="generate",
        units=block,
        described={
            "tokens": block.tokens,
            "temperature": block.temperature,
            **({"stop": list(block.stop)} if block.stop else {}),
        },
        row_bytes=8 * block.tokens,
        token_bytes=4,
        is_packed=False,
        make=lambda model, weights: completions_program(
            model,
            weights,
            tokens=block.tokens,
            temperature=block.temperature,
            seed=config.seed,
            ends=text_ends(tokenizer.eos, config.model.from_),
        ),
        arrange=functools.partial(
            readable,
            decode=tokenizer.decode,
            stop=block.stop,
            spell=functools.partial(tokenizer.decode, with_special=True),
        ),
        is_cut=False,
        is_prompt=True,
    )
