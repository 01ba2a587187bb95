"""Batch generation: a continuation of each row of a corpus."""

from __future__ import annotations

import functools

from tpujob_trainer import data
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.corpus.extract.completions import completions_program, readable
from tpujob_trainer.corpus.extract.config import GenerateConfig
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.tasks.batch.task import BatchTask


def task_of(config: TrainerConfig, shape: ModelShape, tokenizer: data.Tokenizer, length: int) -> BatchTask:
    """What the block `generate` asks for.

    Raises:
        ConfigurationError: rows are conversations.
    """
    block = config.generate or GenerateConfig()
    _require_prompts(config.data)
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
            eos=tokenizer.eos,
        ),
        arrange=functools.partial(
            readable,
            decode=tokenizer.decode,
            stop=block.stop,
            spell=functools.partial(tokenizer.decode, with_special=True),
        ),
        is_cut=False,
    )


def _require_prompts(config: data.DataConfig) -> None:
    """The text of a conversation ends with its last turn: a model would go on behind that, and not answer."""
    for field, source in config.sources():
        given = {"messagesColumn": source.messages_column, "messages": source.messages}
        if source.custom is not None:
            given["lossOn"] = source.loss_on
        if key := next((key for key, value in given.items() if value is not None), None):
            raise ConfigurationError(
                f"{field}.{key}: task: generate continues texts, and a conversation ends with its last turn; write "
                f"the prompt with {field.removeprefix(f'{BLOCK}.')}.template, up to where the answer begins"
            )
