"""Memory, batches and FLOPs of a configuration on a number of devices, by arithmetic only: without JAX, and fast.

Weights and their optimizer state are float32. Vectors count as divided, although they are replicated, and Adafactor's
sums of rows and columns do not count.
"""

import dataclasses
import json
import textwrap
from collections.abc import Iterator

from tpujob_contract.job_facts import Facts, Place, TrainingFigures
from tpujob_contract.storage_address import is_path
from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import OptimizerConfig, TrainerConfig
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.data.text.tokenizer_files import load_tokenizer
from tpujob_trainer.model.chips import BY_KIND, CHIPS
from tpujob_trainer.model.config import PRESETS
from tpujob_trainer.model.lora_config import OF_MLP, LoraConfig
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.shape import CustomShape, ModelShape
from tpujob_trainer.model.weights.read_shape import model_read
from tpujob_trainer.values.errors import TrainerError


def utilisation(tokens_per_second: float, *, flops_per_token: float, device_kind: str, devices: int) -> float | None:
    """Model FLOPs utilisation (PaLM, appendix B); None: the peak of the devices is unknown.

    Args:
        tokens_per_second: Of all devices.
        flops_per_token: Of training, without recomputation.
        device_kind: As JAX names it.
        devices: Number of devices of the run.
    """
    chip = BY_KIND.get(device_kind)
    return None if chip is None else tokens_per_second * flops_per_token / (chip.flops * devices)


def forward_flops_per_token(shape: ModelShape, sequence_length: int, *, is_causal: bool = False) -> int:
    """FLOPs for the logits of one token: two for each weight of a matrix product, and attention.

    Queries times keys and probabilities times values are 2 · 2 · heads · headDim FLOPs for each pair of positions. All
    pairs count, masked or not (Chowdhery and others 2022, PaLM, appendix B); with `is_causal`, only those that a row of
    one document needs, as in MaxText. For a custom model only the weights count.
    """
    if isinstance(shape, CustomShape):
        return 2 * shape.num_parameters
    mlp = 3 * shape.embed_dim * shape.mlp_dim
    if shape.experts:
        mlp = mlp * shape.experts_per_token + shape.embed_dim * shape.experts
    if shape.shared_mlp_dim is not None:
        mlp += 3 * shape.embed_dim * shape.shared_mlp_dim + shape.embed_dim * shape.shared_gate
    attention = attention_flops_per_token(shape, sequence_length, is_causal=is_causal)
    dense = shape.dense_layers * 3 * shape.embed_dim * (shape.dense_mlp_dim or 0)
    products = shape.layers * shape.projection_parameters + (shape.layers - shape.dense_layers) * mlp + dense
    return 2 * products + attention + 2 * shape.embed_dim * shape.vocab_size


def attention_flops_per_token(shape: ModelShape, sequence_length: int, *, is_causal: bool = False) -> int:
    """The part of `forward_flops_per_token` between queries, keys and values; 0 for a custom model."""
    if isinstance(shape, CustomShape):
        return 0
    seen = sum(_pairs(shape, sequence_length, is_global, is_causal) for is_global in shape.global_layers)
    return int(2 * shape.heads * (shape.head_dim + shape.value_dim) * seen)


def training_flops_per_token(shape: ModelShape, sequence_length: int, *, is_causal: bool = False) -> int:
    """FLOPs to train on one token: the backward pass is twice the forward pass. Recomputation is not counted."""
    return 3 * forward_flops_per_token(shape, sequence_length, is_causal=is_causal)


def _pairs(shape: ModelShape, length: int, is_global: bool, is_causal: bool) -> float:
    """The mean number of positions that count for a position of a layer."""
    if not is_causal or not length:
        return length
    window = length if is_global or shape.window is None else min(shape.window, length)
    return window - window * (window - 1) / (2 * length)


FLOAT_BYTES = 4
_MOMENTS = {"adamw": 2, "lion": 1, "muon": 1, "adafactor": 0}
"""Numbers in the optimizer state for each weight of a layer's matrices."""


def state_bytes_per_device(run: ResolvedConfig) -> float:
    """Bytes of weights and optimizer state. A custom optimizer is assumed to keep two numbers for each weight."""
    vocabulary = run.model.vocabulary_parameters / _vocabulary_parts(run.mesh)
    others = (run.model.num_parameters - run.model.vocabulary_parameters) / _parts(run.mesh)
    if run.lora is not None:
        adapters = adapter_parameters(run.model, run.lora, expert=run.mesh.expert) * (1 + _moments(run.optimizer))
        return FLOAT_BYTES * (vocabulary + others + adapters)
    copies = 1 + _moments(run.optimizer) + (run.optimizer.ema_decay is not None)
    # Muon leaves the embedding and the output matrix to AdamW.
    is_muon = run.optimizer.custom is None and run.optimizer.name == "muon"
    return FLOAT_BYTES * (copies * others + (copies + is_muon) * vocabulary)


def adapter_parameters(shape: ModelShape, lora: LoraConfig, *, expert: int) -> int:
    """Parameters of the adapters on a device: all of them, except those of experts on other devices.

    Args:
        shape: Of the model.
        lora: The adapters.
        expert: Number of devices over which experts are divided.
    """
    heads, key_heads = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    widths = {"query": heads, "key": key_heads, "value": key_heads, "out": shape.heads * shape.value_dim}
    narrow = {"query": shape.latent.query_rank} if shape.latent and shape.latent.query_rank else {}
    each = dict.fromkeys(OF_MLP, shape.experts // expert if shape.experts else 1)
    sides = [
        each.get(target, 1) * (narrow.get(target, shape.embed_dim) + widths.get(target, shape.mlp_dim))
        for target in lora.targets
    ]
    return shape.layers * lora.rank * sum(sides)


def _moments(optimizer: OptimizerConfig) -> int:
    return 2 if optimizer.custom is not None else _MOMENTS[optimizer.name]


def _vocabulary_parts(mesh: MeshShape) -> int:
    """Devices over which embedding and output are divided: `partitioning.WEIGHT_AXES`; slices and `data` replicate."""
    return mesh.fsdp * mesh.expert * mesh.context


def _parts(mesh: MeshShape) -> int:
    """Devices over which the layers' matrices are divided."""
    return _vocabulary_parts(mesh) * mesh.tensor


BYTES_OF_TOKENIZER = 259
"""Ids of the tokenizer of bytes, which stands in for one that is not on this machine."""
SLOW_STEP_FLOPS = 1e13
"""Of a step on CPUs: about a minute on eight cores with 150 GFLOP/s together."""
QUICK_SEQUENCE = 256
REACH_SECONDS = 5.0
"""Limit for storage to answer with the config.json of model.from."""


def arithmetic(config: TrainerConfig, place: Place) -> Facts:
    """The figures of a run: `training`, `effective` and `warnings` of the facts.

    Raises:
        ConfigurationError: two fields contradict each other, the rows do not divide over the devices, or config.json of
            `model.from` needs an unsupported feature.
        NotFoundError: that config.json cannot be read from here.
    """
    preset = PRESETS[config.model.preset] if config.model.preset else None
    fixed = config.model.vocab_size or (preset.vocab_size if preset else None)
    if config.model.from_ is not None:
        read = model_read(config.model, REACH_SECONDS)
        config, fixed = dataclasses.replace(config, model=read), read.shape.vocab_size
    known = fixed or _ids_here(config.data)
    vocabulary = min(known or BYTES_OF_TOKENIZER, 2**22)
    run = resolve(
        config,
        num_devices=place.devices,
        vocabulary=vocabulary,
        platform=place.platform,
        slices=place.slices,
        chip=CHIPS.get(place.generation or ""),
    )
    assert run.optimizer.warmup_steps is not None
    assert run.optimizer.learning_rate is not None
    flops = training_flops_per_token(run.model, run.sequence_length)
    tokens = run.steps * run.tokens_per_step
    figures = TrainingFigures(
        parameters=run.model.num_parameters,
        vocabulary=vocabulary,
        vocabulary_is_known=known is not None,
        steps=run.steps,
        batch_size=run.batch_size,
        sequence_length=run.sequence_length,
        tokens=tokens,
        flops=flops * tokens,
        state_bytes_per_device=state_bytes_per_device(run),
        warmup_steps=run.optimizer.warmup_steps,
        mesh=run.mesh.reason,
        learning_rate=run.optimizer.learning_rate,
    )
    warnings = (*_warnings(run, place), *_slow_steps(run, place, flops))
    return Facts(training=figures, effective=json.loads(run.as_json()), warnings=warnings)


def _ids_here(config: DataConfig) -> int | None:
    """Ids of a tokenizer on this machine; None: it is elsewhere or damaged, which `check_prerequisites` reports."""
    if not is_path(config.tokenizer or "bytes"):
        return None
    try:
        return load_tokenizer(config).vocab_size
    except (TrainerError, OSError):
        return None


def _slow_steps(run: ResolvedConfig, place: Place, flops_per_token: float) -> Iterator[str]:
    if place.platform != "cpu" or flops_per_token * run.tokens_per_step < SLOW_STEP_FLOPS:
        return
    length = min(run.sequence_length, QUICK_SEQUENCE)
    yield (
        f"spec.trainer.batchSize: a step of {run.batch_size:,} x {run.sequence_length:,} tokens takes minutes or hours "
        f"on CPUs; for a trial give batchSize: {place.devices} and sequenceLength: {length}"
    )


def _warnings(run: ResolvedConfig, place: Place) -> Iterator[str]:
    if (rows := run.batch_size // place.devices) > 64 and place.platform != "cpu":
        yield f"spec.trainer.batchSize: {rows} rows for each device; more devices would help"
    if isinstance(run.model, CustomShape) and (unnamed := run.model.unnamed):
        yield (
            f"spec.trainer.model.custom: {len(unnamed)} weights do not name their dimensions, and are divided along "
            f"the longest one that the devices divide: {textwrap.shorten(', '.join(unnamed), 200, placeholder=' …')}"
        )
    if run.checkpoint.every_steps and run.checkpoint.every_steps > run.steps:
        yield f"spec.trainer.checkpoint.everySteps: {run.checkpoint.every_steps}, and there are {run.steps} steps"
