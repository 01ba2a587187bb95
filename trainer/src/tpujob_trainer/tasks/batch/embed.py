"""Embedding: one vector for each row of a corpus."""

from __future__ import annotations

from tpujob_trainer import data
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.corpus.extract.config import VALUE_BYTES, EmbedConfig
from tpujob_trainer.corpus.extract.embeddings import embeddings_program
from tpujob_trainer.corpus.extract.layers import column_of, sites_of
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.tasks.batch.task import BatchTask
from tpujob_trainer.tasks.extraction_bounds import forward_flops, rows_flops


def task_of(config: TrainerConfig, shape: ModelShape, tokenizer: data.Tokenizer, length: int) -> BatchTask:
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
