"""What a configuration comes to on given hardware: every number that the run uses, printed once at start.

Batch and steps never depend on the number of devices: a run that moves to other hardware keeps its batches.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from tpujob_trainer.config.schema import (
    BLOCK,
    CheckpointConfig,
    EvaluationConfig,
    NonFiniteConfig,
    OptimizerConfig,
    SampleConfig,
    TrackersConfig,
    TrainerConfig,
)
from tpujob_trainer.config_parsing import camel_case
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.exit.watchdog import WatchdogConfig
from tpujob_trainer.model.mesh_choice import MeshShape, choose_mesh
from tpujob_trainer.model.presets import PRESETS
from tpujob_trainer.model.shape import ModelShape

DEFAULT_SEQUENCE_LENGTH = 2048
DEFAULT_BATCH_TOKENS = 2**19
DEFAULT_LEARNING_RATE = 3e-4


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig:
    """The whole run in numbers; nothing is left to be derived."""

    model: ModelShape
    mesh: MeshShape
    data: DataConfig
    steps: int
    sequence_length: int
    batch_size: int
    gradient_accumulation: int
    seed: int
    optimizer: OptimizerConfig
    """With learning_rate and warmup_steps set."""
    checkpoint: CheckpointConfig
    non_finite: NonFiniteConfig
    evaluation: EvaluationConfig | None
    sample: SampleConfig | None
    trackers: TrackersConfig | None
    log_every_steps: int
    heartbeat_seconds: int
    watchdog: WatchdogConfig
    weights_from: str | None = None
    """Folder of the Hugging Face model that training starts from."""

    @property
    def tokens_per_step(self) -> int:
        """Positions of a global batch."""
        return self.batch_size * self.sequence_length

    def as_json(self) -> str:
        """The run as one line of JSON, in the field's spelling."""
        return json.dumps(_camel(dataclasses.asdict(self)), sort_keys=True)


def resolve(
    config: TrainerConfig, *, num_devices: int, vocabulary: int, platform: str, slices: int = 1
) -> ResolvedConfig:
    """The run in numbers.

    Args:
        config: what was written.
        num_devices: devices of all processes.
        vocabulary: number of ids that the tokenizer produces.
        platform: jax's word for the devices: cpu, gpu, tpu.
        slices: over which the devices lie.

    Raises:
        ConfigurationError: no mesh is possible, the rows do not divide over the devices, or two fields contradict each
            other.
    """
    preset = PRESETS[config.model.preset] if config.model.preset else None
    try:
        model = config.model.resolve(vocabulary=vocabulary, platform=platform)
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.model.{error}") from error
    length = config.sequence_length or (preset.sequence_length if preset else DEFAULT_SEQUENCE_LENGTH)
    batch_tokens = preset.batch_tokens if preset else DEFAULT_BATCH_TOKENS
    batch_size = config.batch_size or max(1, batch_tokens // length)
    mesh = _resolve_mesh(config, model, num_devices, slices, batch_size, length)
    _check_rows(batch_size, config.gradient_accumulation, mesh, num_devices, given=config.batch_size is not None)
    steps = config.steps or -(-(config.tokens or 0) // (batch_size * length))
    return ResolvedConfig(
        model=model,
        mesh=mesh,
        data=config.data,
        steps=steps,
        sequence_length=length,
        batch_size=batch_size,
        gradient_accumulation=config.gradient_accumulation,
        seed=config.seed,
        optimizer=_resolve_optimizer(config, steps, preset.learning_rate if preset else DEFAULT_LEARNING_RATE),
        checkpoint=config.checkpoint,
        non_finite=config.non_finite,
        evaluation=config.evaluation,
        sample=config.sample,
        trackers=config.trackers,
        log_every_steps=config.log_every_steps,
        heartbeat_seconds=config.heartbeat_seconds,
        watchdog=config.watchdog,
        weights_from=config.model.from_,
    )


def _resolve_mesh(
    config: TrainerConfig, model: ModelShape, num_devices: int, slices: int, batch_size: int, length: int
) -> MeshShape:
    try:
        return choose_mesh(
            config.mesh,
            model,
            devices=num_devices,
            slices=slices,
            batch_size=batch_size // config.gradient_accumulation,
            sequence_length=length,
        )
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.mesh.{error}") from error


def _check_rows(batch_size: int, accumulation: int, mesh: MeshShape, num_devices: int, *, given: bool) -> None:
    unit = accumulation * mesh.rows
    if batch_size % unit == 0:
        return
    below = batch_size // unit * unit
    works = f"{below}, {below + unit} and {below + 2 * unit}" if below else f"{unit}, {2 * unit} and {3 * unit}"
    parts = f" in {accumulation} parts (gradientAccumulation)" if accumulation > 1 else ""
    derived = "" if given else " (derived: it was not given)"
    over = f"{num_devices} devices" if mesh.rows == num_devices else f"{mesh.rows} groups of {num_devices} devices"
    raise ConfigurationError(
        f"{BLOCK}.batchSize: {batch_size} rows{derived} do not divide over {over}{parts}; {works} do"
    )


def _resolve_optimizer(config: TrainerConfig, steps: int, learning_rate: float) -> OptimizerConfig:
    optimizer = config.optimizer
    warmup = optimizer.warmup_steps
    if warmup is None:
        warmup = min(2000, steps // 10)
    elif warmup >= steps:
        raise ConfigurationError(
            f"{BLOCK}.optimizer.warmupSteps: {warmup} leaves nothing of the run's {steps} steps; "
            f"it must be less, {steps // 10} for instance"
        )
    return dataclasses.replace(optimizer, learning_rate=optimizer.learning_rate or learning_rate, warmup_steps=warmup)


def _camel(value: object) -> object:
    if isinstance(value, dict):
        return {camel_case(key): _camel(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_camel(item) for item in value]
    return value
