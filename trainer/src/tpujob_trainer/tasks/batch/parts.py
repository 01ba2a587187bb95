"""The parts of a batch job, assembled before its weights are loaded."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable

from tpujob_contract import Process
from tpujob_contract.batch_rows import DEFAULT_SEQUENCE_LENGTH
from tpujob_trainer import data
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.corpus.extract import forecast
from tpujob_trainer.errors import TrainerError
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.tasks.batch import tasks
from tpujob_trainer.tasks.batch.corpus_listing import corpus_manifest
from tpujob_trainer.tasks.batch.model import read_model_shape, with_staged_weights
from tpujob_trainer.tasks.batch.tasks import BatchTask
from tpujob_trainer.tasks.batch.worker import Worker

logger = logging.getLogger(__name__)

TASKS: dict[str, Callable[[TrainerConfig, ModelShape, data.Tokenizer, int], BatchTask]] = {
    "extract": tasks.extract_task,
    "score": tasks.score_task,
    "embed": tasks.embed_task,
    "generate": tasks.generate_task,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchParts:
    """The parts of a batch job: what to compute, and for which corpus."""

    worker: Worker
    config: TrainerConfig
    """As the user wrote it."""
    source: TrainerConfig
    """The configuration with the path that this worker reads weights from."""
    tokenizer: data.Tokenizer
    shape: ModelShape
    length: int
    """Tokens of the longest row."""
    task: BatchTask
    manifest: data.Manifest


def assemble_batch(worker: Worker, process: Process, config: TrainerConfig) -> BatchParts:
    """The parts of a batch job; lists the corpus unless another worker has.

    Raises:
        TrainerError: a subclass, by cause.
    """
    tokenizer = data.load_tokenizer(config.data)
    source = with_staged_weights(config, worker, process)
    shape = read_model_shape(source, tokenizer.vocab_size)
    length = config.sequence_length or DEFAULT_SEQUENCE_LENGTH
    task = TASKS[config.task](source, shape, tokenizer, length)
    mean = functools.partial(
        mean_length,
        config=config,
        tokenizer=tokenizer,
        vocab_size=shape.vocab_size,
        longest=length,
        is_prompt=task.is_prompt,
    )
    return BatchParts(
        worker=worker,
        config=config,
        source=source,
        tokenizer=tokenizer,
        shape=shape,
        length=length,
        task=task,
        manifest=corpus_manifest(worker, process, config, task, length, mean),
    )


def mean_length(
    corpus: data.Manifest,
    *,
    config: TrainerConfig,
    tokenizer: data.Tokenizer,
    vocab_size: int,
    longest: int,
    is_prompt: bool,
) -> float | None:
    """Mean tokens of a row, from a sample of rows; None: the sample has no usable row, or cannot be read.

    Args:
        corpus: A corpus with a known number of rows.
        config: Of the job.
        tokenizer: Encodes texts.
        vocab_size: Of the model.
        longest: Maximum tokens of a row.
        is_prompt: Whether a conversation ends where its last answer begins.
    """
    try:
        found = forecast.sample(
            corpus,
            tokenizer,
            vocab_size=vocab_size,
            longest=longest,
            is_prompt=is_prompt,
            retry_seconds=config.data.retry_seconds,
        )
    except TrainerError as error:  # the worker that computes the unit reports the error
        logger.info("The rows of the corpus are taken to be full: %s", error)
        return None
    return found.mean_length
