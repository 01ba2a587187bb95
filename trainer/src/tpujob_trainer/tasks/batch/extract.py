"""Extraction: the activations of layers, for each row of a corpus."""

from __future__ import annotations

from tpujob_trainer import data
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.corpus.extract.forward import activations_program
from tpujob_trainer.corpus.extract.layers import column_of
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.tasks.batch.task import BatchTask
from tpujob_trainer.tasks.extraction_bounds import forward_flops, kept_sites, rows_flops, vector_bytes


def task_of(config: TrainerConfig, shape: ModelShape, tokenizer: data.Tokenizer, length: int) -> BatchTask:
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
