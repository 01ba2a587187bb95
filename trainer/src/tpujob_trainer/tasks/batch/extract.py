"""Extraction: the activations of layers, for each row of a corpus."""

from __future__ import annotations

from tpujob_trainer import data
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.corpus.extract.forward import activations_program
from tpujob_trainer.corpus.extract.layers import column_of, sites_of
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.tasks.batch.task import DTYPE_BYTES, BatchTask


def task_of(config: TrainerConfig, shape: ModelShape, tokenizer: data.Tokenizer, length: int) -> BatchTask:
    """What the block `extract` asks for.

    Raises:
        ConfigurationError: the model has no such layer.
    """
    block = config.extract
    assert block is not None
    try:
        sites = sites_of(block.layers, block.keep, shape.layers)
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.extract.{error}") from error
    vectors = len(sites) * (length if block.positions == "all" else 1)
    return BatchTask(
        name="extract",
        units=block,
        described={
            "layers": [column_of(site, shape.layers) for site in sites],
            "positions": block.positions,
            "dtype": block.dtype,
        },
        row_bytes=vectors * shape.embed_dim * DTYPE_BYTES[block.dtype],
        make=lambda model, weights: activations_program(
            model, weights, sites, positions=block.positions, dtype=block.dtype
        ),
    )
