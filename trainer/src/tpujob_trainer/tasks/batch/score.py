"""Scoring: the loss and the perplexity of each row of a corpus."""

from __future__ import annotations

from tpujob_trainer import data
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.corpus.extract.config import ScoreConfig
from tpujob_trainer.corpus.extract.scores import scores_program
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.tasks.batch.task import BatchTask
from tpujob_trainer.tasks.extraction_bounds import rows_flops
from tpujob_trainer.train.flops import forward_flops_per_token

NUMBERS_BYTES = 12
"""Bytes of loss, perplexity and token count of a row."""


def task_of(config: TrainerConfig, shape: ModelShape, tokenizer: data.Tokenizer, length: int) -> BatchTask:
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
