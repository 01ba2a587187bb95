"""The parts of a batch job, assembled before its weights are loaded; and its model, in the compute dtype."""

import dataclasses
import functools
import hashlib
import json
import logging
from collections.abc import Callable

import jax

from tpujob_contract import Process
from tpujob_contract.batch_rows import DEFAULT_SEQUENCE_LENGTH
from tpujob_trainer import data
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.corpus.extract import forecast
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.load import load_weights
from tpujob_trainer.model.weights.read_shape import read_shape
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.tasks.batch import tasks
from tpujob_trainer.tasks.batch.corpus_listing import corpus_manifest
from tpujob_trainer.tasks.batch.staged_weights import staged
from tpujob_trainer.tasks.batch.tasks import BatchTask
from tpujob_trainer.tasks.batch.worker import Worker
from tpujob_trainer.values.errors import ConfigurationError, TrainerError

logger = logging.getLogger(__name__)


def with_staged_weights(config: TrainerConfig, worker: Worker, process: Process) -> TrainerConfig:
    """The configuration with the path that this worker reads weights from."""
    if config.model.from_ is None:
        return config
    place = staged(config.model.from_, open_bucket(worker.directory), worker.name, process, worker.report.tick)
    return dataclasses.replace(config, model=dataclasses.replace(config.model, from_=place))


def read_model_shape(config: TrainerConfig, vocabulary: int) -> ModelShape:
    """The shape of the model.

    Args:
        config: Of the job, with the path that weights are read from.
        vocabulary: Number of token IDs of the tokenizer.

    Raises:
        ConfigurationError: there is no such model.
    """
    platform = jax.default_backend()
    if config.model.from_ is not None:
        dtype = config.model.compute_dtype or ("float32" if platform == "cpu" else "bfloat16")
        ignored = config.model.ignore_config_keys
        return read_shape(config.model.from_, remat="none", compute_dtype=dtype, ignored=ignored)
    try:
        return config.model.resolve(vocabulary=vocabulary, platform=platform)
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.model.{error}") from error


def make_weights(config: TrainerConfig, model: Model) -> Weights:
    """The weights of `model.from`, or fresh ones, in the compute dtype: bfloat16 halves them."""
    dtype = model.shape.compute_dtype
    if config.model.from_ is not None:
        return load_weights(config.model.from_, model.shape, model.abstract_weights, model.shardings, dtype=dtype)
    logger.warning("%s.model.from is not set: the weights are fresh and random", BLOCK)

    def fresh() -> Weights:
        return jax.tree.map(lambda leaf: leaf.astype(dtype), model.init(config.seed))

    return jax.jit(fresh, out_shardings=model.shardings)()


def weights_fingerprint(weights: Weights) -> str:
    """A fingerprint of all weights, 32 hexadecimal digits, which does not depend on their source or sharding."""
    by_leaf = Fingerprinter()(weights).by_leaf
    return hashlib.blake2b(json.dumps(by_leaf, sort_keys=True).encode(), digest_size=16).hexdigest()


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
