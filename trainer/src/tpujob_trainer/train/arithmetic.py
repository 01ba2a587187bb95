"""Memory, batches and FLOPs of a configuration on a number of devices, by arithmetic only: without JAX, and fast.

    python -m tpujob_trainer.train.arithmetic '{"trainer": {…}, "devices": 256, "slices": 1, "platform": "tpu"}'

Writes one JSON object to stdout; `tpujob check` starts it and shows the result as text.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import TrainerConfig, parse_config
from tpujob_trainer.errors import NotFoundError
from tpujob_trainer.errors.answers import answer
from tpujob_trainer.model.chips import CHIPS
from tpujob_trainer.model.presets import PRESETS
from tpujob_trainer.parsing.references import MissingModuleError
from tpujob_trainer.train.flops import training_flops_per_token
from tpujob_trainer.train.state_bytes import state_bytes_per_device

if TYPE_CHECKING:
    from tpujob_trainer.model.config import ModelConfig
    from tpujob_trainer.model.weights.load import ReadModel

BYTES_OF_TOKENIZER = 259
SLOW_STEP_FLOPS = 1e13
"""Of a step on CPUs: about a minute on eight cores with 150 GFLOP/s together."""
QUICK_SEQUENCE = 256
REACH_SECONDS = 5.0
"""Limit for storage to answer with the config.json of model.from."""


def arithmetic(
    config: TrainerConfig, *, devices: int, slices: int, platform: str, generation: str | None = None
) -> dict[str, Any]:
    """The figures of a run, as JSON values.

    Args:
        config: As the user wrote it.
        devices: Number of JAX devices of all processes.
        slices: Number of slices of these devices.
        platform: JAX platform: cpu or tpu.
        generation: Of TPU, as in spec.accelerator; None: unknown, or no TPU.

    Raises:
        ConfigurationError: two fields contradict each other, the rows do not divide over the devices, or config.json of
            `model.from` needs an unsupported feature.
        NotFoundError: that config.json cannot be read from here.
    """
    preset = PRESETS[config.model.preset] if config.model.preset else None
    fixed = config.model.vocab_size or (preset.vocab_size if preset else None)
    if config.model.from_ is not None:
        read = model_read(config.model)
        config, fixed = dataclasses.replace(config, model=read), read.shape.vocab_size
    vocabulary = min(fixed or BYTES_OF_TOKENIZER, 2**22)
    run = resolve(
        config,
        num_devices=devices,
        vocabulary=vocabulary,
        platform=platform,
        slices=slices,
        chip=CHIPS.get(generation or ""),
    )
    flops = training_flops_per_token(run.model, run.sequence_length)
    return {
        "parameters": run.model.num_parameters,
        "vocabulary": vocabulary,
        "vocabulary_is_known": bool(fixed) or config.data.tokenizer in (None, "bytes"),
        "steps": run.steps,
        "batch_size": run.batch_size,
        "sequence_length": run.sequence_length,
        "tokens": run.steps * run.tokens_per_step,
        "flops": flops * run.steps * run.tokens_per_step,
        "state_bytes_per_device": state_bytes_per_device(run),
        "warmup_steps": run.optimizer.warmup_steps,
        "mesh": run.mesh.reason,
        "learning_rate": run.optimizer.learning_rate,
        "effective": json.loads(run.as_json()),
        "warnings": [*_warnings(run, devices, platform), *_slow_steps(run, devices, platform, flops)],
    }


def model_read(model: ModelConfig, reach_seconds: float = REACH_SECONDS) -> ReadModel:
    """The configuration of a model with `from`, with the dimensions of its config.json.

    Storage has `reach_seconds` to answer.

    Raises:
        ConfigurationError: config.json needs an unsupported feature.
        NotFoundError: config.json cannot be read from here.
    """
    # This imports JAX and storage clients, for which callers without `from` must not wait.
    from tpujob_trainer.model.weights.load import ReadModel, with_shape_read
    from tpujob_trainer.storage.remote import RETRYING
    from tpujob_trainer.storage.retrying import StorageFailedError

    RETRYING.limit_seconds = reach_seconds
    try:
        read = with_shape_read(model)
    except StorageFailedError as error:
        raise NotFoundError(str(error)) from error
    assert isinstance(read, ReadModel)
    return read


def _slow_steps(run: ResolvedConfig, devices: int, platform: str, flops_per_token: float) -> Iterator[str]:
    if platform != "cpu" or flops_per_token * run.tokens_per_step < SLOW_STEP_FLOPS:
        return
    length = min(run.sequence_length, QUICK_SEQUENCE)
    yield (
        f"spec.trainer.batchSize: a step of {run.batch_size:,} x {run.sequence_length:,} tokens takes minutes or hours "
        f"on CPUs; for a trial give batchSize: {devices} and sequenceLength: {length}"
    )


def _warnings(run: ResolvedConfig, devices: int, platform: str) -> list[str]:
    found = []
    if run.batch_size // devices > 64 and platform != "cpu":
        found.append(
            f"spec.trainer.batchSize: {run.batch_size // devices} rows for each device; more devices would help"
        )
    if run.checkpoint.every_steps and run.checkpoint.every_steps > run.steps:
        found.append(
            f"spec.trainer.checkpoint.everySteps: {run.checkpoint.every_steps}, and there are {run.steps} steps"
        )
    return found


def main() -> int:
    """Answers the request in the first argument; returns the exit code."""
    return answer(lambda: _found(**json.loads(sys.argv[1])))


def _found(trainer: dict[str, Any], **place: Any) -> dict[str, Any]:
    """The figures, or what is missing on this machine and may exist in pods."""
    try:
        return arithmetic(parse_config(trainer), **place)
    except NotFoundError as error:
        return {"unknown": str(error)}  # of model.from, which nothing else here reads
    except MissingModuleError as error:
        return {"missing_module": str(error)}


if __name__ == "__main__":
    sys.exit(main())
