"""The model of a batch job: its shape, and its weights in the compute dtype."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging

import jax

from tpujob_contract import Process
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.config.schema import BLOCK, TrainerConfig
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.model.decoder import Model, Weights
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.model.weights.load import load_weights
from tpujob_trainer.model.weights.read_shape import read_shape
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.tasks.batch.staged_weights import staged
from tpujob_trainer.tasks.batch.worker import Worker

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
