"""Batch generation: a continuation of each row of a corpus."""

from __future__ import annotations

import functools

from tpujob_trainer import data
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.corpus.extract.completions import completions_program, readable
from tpujob_trainer.corpus.extract.config import GenerateConfig
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.text_ends import text_ends
from tpujob_trainer.tasks.batch.task import BatchTask


def task_of(config: TrainerConfig, shape: ModelShape, tokenizer: data.Tokenizer, length: int) -> BatchTask:
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
