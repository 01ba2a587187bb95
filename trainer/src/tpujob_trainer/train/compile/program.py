"""Compiles the step of a configuration, and gets memory, exchanges and ideal time from the compiled program.

No TPU is needed: libtpu compiles for the description of a topology (`jax.experimental.topologies`). The ideal time
comes from the schedule of the compiled program, at the chip's peak rates: the step can be slower, never faster.
"""

import dataclasses
import math
import os
import re
import time
from dataclasses import dataclass
from typing import Any

import jax
from jax.experimental import topologies

from tpujob_trainer.config.resolve import ResolvedConfig, resolve
from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.model.chips import CHIPS, Chip
from tpujob_trainer.model.custom_model import make_model
from tpujob_trainer.model.decoder import Model
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train.arithmetic import attention_flops_per_token, training_flops_per_token
from tpujob_trainer.train.compile.collectives import Exchange, exchanges
from tpujob_trainer.train.compile.matrix_products import matrix_operations
from tpujob_trainer.train.compile.schedule import Rates, StepTime, step_time
from tpujob_trainer.train.optimizer import make_optimizer, make_schedule
from tpujob_trainer.train.step import abstract_batch, abstract_state, make_run_step
from tpujob_trainer.values.errors import ConfigurationError

_NEEDED = re.compile(r"(?:[Uu]sed |required for HLO temporaries \()([\d.]+)([KMGT])\)? (?:of|exceeds available HBM)")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The figures of a compiled step; bytes and FLOPs are per device."""

    topology: str
    devices: int
    mesh: dict[str, int]
    mesh_reason: str
    fits: bool
    hbm_limit_bytes: int
    peak_bytes: int | None
    """None: the compiler does not report it."""
    argument_bytes: int | None
    """Of weights, moments and the batch."""
    temporary_bytes: int | None
    host_bytes: int | None
    """Offloaded to the memory of the device's host."""
    step_flops: float
    """Causal attention counts half; recomputation is not counted."""
    matrix_flops: int | None
    """Of the matrix products in the program, with recomputation and without attention kernels."""
    ideal_step_seconds: float
    """Computing and waiting, or the reads and writes of the state if these take longer."""
    computing_seconds: float
    """Part of the ideal time: products and attention, with recomputation."""
    hidden_seconds: float
    """Exchanges within a slice that overlap with arithmetic."""
    waiting_seconds: float
    """Part of the ideal time: exchanges within a slice during which nothing is computed."""
    memory_seconds: float
    """Time to read and write weights and moments once."""
    tokens_per_second: float
    """Of all devices, at the ideal time."""
    exchanges: list[Exchange]
    compile_seconds: float
    """Without tracing."""


def prepare_environment() -> None:
    """Lets libtpu start on a machine without TPUs; call it before JAX's backend starts."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    os.environ.setdefault("TPU_LOG_DIR", "disabled")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")


def topology_devices(generation: str, shape: tuple[int, ...], slices: int = 1) -> list[jax.Device]:
    """The devices of described slices, which need not exist.

    Args:
        generation: v4, v5e, v5p, v6e or tpu7x.
        shape: Chips of a slice along each dimension.
        slices: Number of slices.

    Raises:
        ConfigurationError: there is no such generation, or libtpu is not installed.
    """
    if generation not in CHIPS:
        raise ConfigurationError(f"spec.accelerator: {generation} is none of {', '.join(CHIPS)}")
    chip = CHIPS[generation]
    options: dict[str, Any] = {**dict(chip.options), "wrap": wraps(shape)}
    if generation in {"v5e", "v6e"} and math.prod(shape) <= 8:  # one machine; libtpu assumes several by default
        options["chips_per_host_bounds"] = (*shape, 1)
    if slices > 1:
        options["num_slices"] = slices
    name = f"{chip.topology}:{'x'.join(map(str, shape))}"
    try:
        return list(topologies.get_topology_desc(platform="tpu", topology_name=name, **options).devices)
    except (RuntimeError, NotImplementedError) as error:
        raise ConfigurationError(
            f"{name}: libtpu does not describe it ({str(error).splitlines()[0]}); it needs Linux on x86-64 and "
            "`pip install tpujob-trainer[tpu]`"
        ) from error


def wraps(shape: tuple[int, ...]) -> tuple[bool, bool, bool]:
    """For each dimension of a slice, whether it has wrap-around links (Cloud TPU, "System architecture").

    In three dimensions all have them, if the slice consists of cubes of 4x4x4; in two, those of 16 chips. By default
    libtpu assumes none, and for a cube without them it turns gathers into sums of padded arrays: twice the bytes.
    """
    if len(shape) == 2:
        return shape[0] == 16, shape[1] == 16, False
    is_of_cubes = all(size % 4 == 0 for size in shape)
    return is_of_cubes, is_of_cubes, is_of_cubes


def compile_step(
    config: TrainerConfig, *, generation: str, shape: tuple[int, ...], slices: int = 1, vocabulary: int = 2
) -> Compiled:
    """The step of a configuration, compiled for a topology.

    Args:
        config: The `trainer` block.
        generation: Of TPU.
        shape: Chips of a slice along each dimension.
        slices: Number of slices.
        vocabulary: Number of token IDs of the tokenizer, if the preset does not set it.

    Raises:
        ConfigurationError: the configuration does not fit the number of devices.
    """
    run, model, lowered = lower_step(config, generation=generation, shape=shape, slices=slices, vocabulary=vocabulary)
    devices = model.mesh.devices.size
    began = time.monotonic()
    memory, text = _compiled(lowered)
    found = exchanges(text, devices // slices) if text is not None else []
    chip = CHIPS[generation]
    spent = _least_time(run, chip, text, devices=devices, slices=slices)
    # The state is read and written at least once.
    memory_seconds = 2 * (memory["argument_bytes"] or 0) / chip.hbm_bytes_per_second
    seconds = max(spent.total, memory_seconds)
    peak_bytes = memory["peak_bytes"]
    return Compiled(
        topology=f"{slices} x {generation}:{'x'.join(map(str, shape))}",
        devices=devices,
        mesh={axis: size for axis, size in model.mesh.shape.items() if size > 1},
        mesh_reason=run.mesh.reason,
        fits=peak_bytes is not None and peak_bytes <= chip.hbm_bytes,
        hbm_limit_bytes=int(chip.hbm_bytes),
        **memory,
        step_flops=run.tokens_per_step / devices * _training_flops(run),
        matrix_flops=matrix_operations(text, run.model.experts) if text is not None else None,
        ideal_step_seconds=seconds,
        computing_seconds=spent.computing,
        hidden_seconds=spent.sending - spent.waiting,
        waiting_seconds=spent.waiting,
        memory_seconds=memory_seconds,
        tokens_per_second=run.tokens_per_step / seconds,
        exchanges=found,
        compile_seconds=time.monotonic() - began,
    )


def lower_step(
    config: TrainerConfig, *, generation: str, shape: tuple[int, ...], slices: int = 1, vocabulary: int = 2
) -> tuple[ResolvedConfig, Model, Any]:
    """The resolved configuration, the model and the traced step; the arguments are those of `compile_step`."""
    devices = topology_devices(generation, shape, slices)
    run = resolve(
        config,
        num_devices=len(devices),
        vocabulary=vocabulary,
        platform="tpu",
        slices=slices,
        chip=CHIPS[generation],
    )
    model = make_model(run.model, build_mesh(slices=slices, devices=devices, shape=run.mesh), run.lora)
    schedule = make_schedule(run.optimizer, steps=run.steps)
    optimizer = make_optimizer(run.optimizer, schedule, has_adapters=run.lora is not None)
    step: Any = make_run_step(run, model, optimizer, schedule)
    state = abstract_state(model, optimizer)
    return run, model, step.lower(state, abstract_batch(model, run.batch_size, run.sequence_length))


def as_json(compiled: Compiled) -> dict[str, Any]:
    """The fields as plain values, by name."""
    return dataclasses.asdict(compiled)


def _compiled(lowered: Any) -> tuple[dict[str, int | None], str | None]:
    """The memory of the program by field of `Compiled`, and its text; only the peak if it does not fit."""
    try:
        program = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        peak = needed_bytes(str(error))
        if peak is None:
            raise
        return {"peak_bytes": peak, "argument_bytes": None, "temporary_bytes": None, "host_bytes": None}, None
    analysis = program.memory_analysis()
    memory = {
        "peak_bytes": analysis.peak_memory_in_bytes,
        "argument_bytes": analysis.argument_size_in_bytes,
        "temporary_bytes": analysis.temp_size_in_bytes,
        "host_bytes": analysis.host_temp_size_in_bytes,
    }
    return memory, program.as_text()


def needed_bytes(message: str) -> int | None:
    """The bytes that a program that does not fit needs, from the error message; None: it is another error.

    Only those of temporaries if these alone are too large: the compiler then stops before it has placed the rest.
    """
    match = _NEEDED.search(message)
    return int(float(match.group(1)) * _UNITS[match.group(2)]) if match else None


def _least_time(run: ResolvedConfig, chip: Chip, text: str | None, *, devices: int, slices: int) -> StepTime:
    """The least time from the text of the program; if it was not compiled, only the time of its arithmetic."""
    tokens = run.tokens_per_step / devices
    if text is None:
        share = chip.arithmetic_share(run.model.quantization)
        return StepTime(computing=tokens * _training_flops(run) / chip.flops * share)
    attention = tokens * attention_flops_per_token(run.model, run.sequence_length, is_causal=True)
    rates = Rates(operations=chip.flops, narrow=_narrow(chip), link_bytes=chip.link_bytes_per_second)
    return step_time(
        text,
        rates,
        attention_seconds=attention / chip.flops,
        devices_per_slice=devices // slices,
        experts=run.model.experts,
    )


def _training_flops(run: ResolvedConfig) -> int:
    return training_flops_per_token(run.model, run.sequence_length, is_causal=True)


def _narrow(chip: Chip) -> dict[str, float]:
    """Speed-up of products by HLO type of the operands."""
    types = {"int8": ("s8", "u8"), "fp8": ("f8e4m3fn", "f8e5m2")}
    return {kind: rate for name, rate in chip.narrow_rates.items() for kind in types[name]}
