"""What a batch job is assembled from, before its weights are loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tpujob_contract import Process
from tpujob_contract.batch_rows import DEFAULT_SEQUENCE_LENGTH
from tpujob_trainer import data
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.tasks.batch import embed, extract, generate, score
from tpujob_trainer.tasks.batch.corpus_listing import corpus_manifest
from tpujob_trainer.tasks.batch.model import read_model_shape, with_staged_weights
from tpujob_trainer.tasks.batch.task import BatchTask
from tpujob_trainer.tasks.batch.worker import Worker

TASKS: dict[str, Callable[[TrainerConfig, ModelShape, data.Tokenizer, int], BatchTask]] = {
    "extract": extract.task_of,
    "score": score.task_of,
    "embed": embed.task_of,
    "generate": generate.task_of,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchParts:
    """What is computed of which corpus."""

    worker: Worker
    config: TrainerConfig
    """As the user wrote it."""
    source: TrainerConfig
    """The configuration with the place that this worker reads weights from."""
    tokenizer: data.Tokenizer
    shape: ModelShape
    length: int
    """Tokens of the longest row."""
    task: BatchTask
    manifest: data.Manifest


def assemble_batch(worker: Worker, process: Process, config: TrainerConfig) -> BatchParts:
    """The parts of a batch job; the corpus is listed here, unless another worker has listed it.

    Raises:
        TrainerError: of the class whose exit code says why.
    """
    tokenizer = data.load_tokenizer(config.data)
    source = with_staged_weights(config, worker, process)
    shape = read_model_shape(source, tokenizer.vocab_size)
    length = config.sequence_length or DEFAULT_SEQUENCE_LENGTH
    task = TASKS[config.task](config, shape, tokenizer, length)
    return BatchParts(
        worker=worker,
        config=config,
        source=source,
        tokenizer=tokenizer,
        shape=shape,
        length=length,
        task=task,
        manifest=corpus_manifest(worker, process, config, task),
    )
