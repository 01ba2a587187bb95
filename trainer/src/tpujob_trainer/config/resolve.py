"""A configuration resolved for given hardware: every number that the run uses, printed once at start.

Batch and steps never depend on the number of devices: a run that moves to other hardware keeps its batches.
"""

import dataclasses
import json
from dataclasses import dataclass

from tpujob_contract.batch_rows import DEFAULT_BATCH_TOKENS, DEFAULT_SEQUENCE_LENGTH, rows_problem
from tpujob_contract.storage_address import redacted_values
from tpujob_trainer.config.schema import (
    BLOCK,
    CallbackConfig,
    CheckpointConfig,
    EvaluationConfig,
    ExportConfig,
    NonFiniteConfig,
    OptimizerConfig,
    ProfileConfig,
    SampleConfig,
    TrackersConfig,
    TrainerConfig,
)
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.distributed.exit.watchdog import WatchdogConfig
from tpujob_trainer.model.chips import Chip
from tpujob_trainer.model.config import PRESETS, ModelConfig
from tpujob_trainer.model.lora_config import OF_MLP, LoraConfig
from tpujob_trainer.model.mesh.choice import choose_mesh
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.shape import ModelShape
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.from_mapping import camel_case

DEFAULT_LEARNING_RATE = 3e-4


@dataclass(frozen=True, kw_only=True)
class ResolvedConfig:
    """All values of a run; nothing is left to be derived."""

    model: ModelShape
    mesh: MeshShape
    data: DataConfig
    steps: int
    sequence_length: int
    batch_size: int
    gradient_accumulation: int
    z_loss: float
    router_balance_loss: float
    router_z_loss: float
    seed: int
    optimizer: OptimizerConfig
    """With learning_rate and warmup_steps set."""
    checkpoint: CheckpointConfig
    non_finite: NonFiniteConfig
    evaluation: EvaluationConfig | None
    sample: SampleConfig | None
    callbacks: tuple[CallbackConfig, ...]
    export: ExportConfig | None
    trackers: TrackersConfig | None
    profile: ProfileConfig | None
    log_every_steps: int
    heartbeat_seconds: int
    watchdog: WatchdogConfig
    lora: LoraConfig | None = None
    loss: str | None = None
    """`module:name` of the user's loss."""
    weights_from: str | None = None
    """Folder of the Hugging Face model that training starts from."""
    custom_weights_from: str | None = None
    """Folder of the weights of `model.custom` that training starts from."""

    @property
    def tokens_per_step(self) -> int:
        """Positions of a global batch."""
        return self.batch_size * self.sequence_length

    def as_json(self) -> str:
        """The run as one line of JSON, with the block's keys; without secrets, because logs and checkpoints keep it."""
        return json.dumps(redacted_values(_camel(dataclasses.asdict(self))), sort_keys=True)


def resolve(
    config: TrainerConfig,
    *,
    num_devices: int,
    vocabulary: int,
    platform: str,
    slices: int = 1,
    chip: Chip | None = None,
) -> ResolvedConfig:
    """The configuration of a run with all values resolved.

    Args:
        config: the `trainer` block.
        num_devices: devices of all processes.
        vocabulary: number of ids that the tokenizer produces.
        platform: JAX's name for the devices' platform: cpu, gpu, tpu.
        slices: number of slices with these devices.
        chip: of each device; None: unknown, or no TPU.

    Raises:
        ConfigurationError: no mesh is possible, the rows cannot be divided, or two fields contradict each other.
    """
    preset = PRESETS[config.model.preset] if config.model.preset else None
    model = resolve_model(config.model, vocabulary, platform)
    length = config.sequence_length or (preset.sequence_length if preset else DEFAULT_SEQUENCE_LENGTH)
    batch_size = config.batch_size or max(1, (preset.batch_tokens if preset else DEFAULT_BATCH_TOKENS) // length)
    mesh = _resolve_mesh(config, model, num_devices, slices, batch_size, length, chip)
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
        z_loss=config.z_loss,
        router_balance_loss=_of_experts("routerBalanceLoss", config.router_balance_loss, model),
        router_z_loss=_of_experts("routerZLoss", config.router_z_loss, model),
        seed=config.seed,
        optimizer=_resolve_optimizer(config, steps, preset.learning_rate if preset else DEFAULT_LEARNING_RATE),
        checkpoint=config.checkpoint,
        non_finite=config.non_finite,
        evaluation=config.evaluation,
        sample=config.sample,
        callbacks=config.callbacks,
        export=config.export,
        trackers=config.trackers,
        profile=config.profile,
        log_every_steps=config.log_every_steps,
        heartbeat_seconds=config.heartbeat_seconds,
        watchdog=config.watchdog,
        lora=_resolve_lora(config, model),
        loss=config.loss,
        weights_from=config.model.from_,
        custom_weights_from=config.model.weights,
    )


def _resolve_lora(config: TrainerConfig, model: ModelShape) -> LoraConfig | None:
    if config.lora is None:
        return None
    others = [name for name in config.lora.targets if name not in ("query", "out")]
    if others and model.latent is not None:
        # Keys and values are one matrix, and experts are not in all layers.
        raise ConfigurationError(
            f"{BLOCK}.lora.targets: {', '.join(others)}: the family {model.family} has adapters of query and out only; "
            "name one of these, or both"
        )
    of_mlp = [name for name in config.lora.targets if name in OF_MLP]
    if of_mlp and (model.swiglu_alpha is not None or model.shared_mlp_dim is not None):
        # gpt-oss has gate and up in one matrix; for Qwen 2's mixture, PEFT 0.21 reads adapters of experts only with
        # transformers 4, and silently ignores them with 5.
        raise ConfigurationError(
            f"{BLOCK}.lora.targets: {', '.join(of_mlp)}: the experts of {model.family} have no adapters; name some of "
            "query, key, value and out"
        )
    return config.lora


def _of_experts(key: str, factor: float, model: ModelShape) -> float:
    if factor and (not model.experts or model.family == "custom"):
        raise ConfigurationError(
            f"{BLOCK}.{key}: the model has no router of ours; leave it out, or choose family mixtral or qwen3-moe"
        )
    return factor


def resolve_model(config: ModelConfig, vocabulary: int, platform: str) -> ModelShape:
    """The dimensions of any model, also a user-defined one; arguments as in `resolve`.

    Raises:
        ConfigurationError: the vocabulary is too small, or there is no such model.
    """
    try:
        if config.custom is None:
            return config.resolve(vocabulary=vocabulary, platform=platform)
        # Imports JAX, which is slow; other callers do not need it.
        from tpujob_trainer.model.custom_model import custom_shape

        return custom_shape(config, vocabulary=vocabulary, platform=platform)
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.model.{error}") from error


def _resolve_mesh(
    config: TrainerConfig,
    model: ModelShape,
    num_devices: int,
    slices: int,
    batch_size: int,
    length: int,
    chip: Chip | None,
) -> MeshShape:
    try:
        return choose_mesh(
            config.mesh,
            model,
            devices=num_devices,
            slices=slices,
            batch_size=batch_size // config.gradient_accumulation,
            sequence_length=length,
            chip=chip,
        )
    except ValueError as error:
        raise ConfigurationError(f"{BLOCK}.mesh.{error}") from error


def _check_rows(batch_size: int, accumulation: int, mesh: MeshShape, num_devices: int, *, given: bool) -> None:
    derived = "" if given else "derived: it was not given"
    problem = rows_problem(batch_size, parts=mesh.rows, devices=num_devices, accumulation=accumulation, derived=derived)
    if problem is not None:
        raise ConfigurationError(f"{BLOCK}.batchSize: {problem}")


def _resolve_optimizer(config: TrainerConfig, steps: int, learning_rate: float) -> OptimizerConfig:
    optimizer = config.optimizer
    warmup = optimizer.warmup_steps
    if warmup is None:
        warmup = min(2000, steps // 10)
    elif warmup >= steps:
        raise ConfigurationError(
            f"{BLOCK}.optimizer.warmupSteps: {warmup} leaves nothing of the run's steps; "
            "it must be less, a tenth of them for instance"
        )
    return dataclasses.replace(optimizer, learning_rate=optimizer.learning_rate or learning_rate, warmup_steps=warmup)


def _camel(value: object) -> object:
    if isinstance(value, dict):
        # The keys of arguments are the user's own.
        return {camel_case(key): item if key.endswith("arguments") else _camel(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_camel(item) for item in value]
    return value
