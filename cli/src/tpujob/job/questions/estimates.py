"""Hours, memory and cost of a job on its machines, from the trainer's figures and your prices."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.job.yaml_text import read_value, text_of
from tpujob.output.errors import CommandError
from tpujob_contract.job_facts import ExtractionBounds, ExtractionForecast, Facts, TrainingFigures
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.topology.tables import GENERATIONS

GIB = 2**30
MEGABYTE = 1e6
UTILISATION = (0.3, 0.5)
"""The range of peak utilisation in which efficient training usually runs."""
COMPILE_SECONDS = (30, 180)
"""Assumed for the programs of an extraction, of which there is one for each length of rows."""
PRICES = ("currency", "chipHour", "spotChipHour", "gibMonth")

type Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class TrainingOnChips:
    """A training run on TPUs."""

    hours: Range
    state_bytes_per_chip: float
    hbm_gib: int


@dataclass(frozen=True, kw_only=True)
class TrainingOnDevices:
    """A training run on the devices of its job."""

    rows_per_device: float
    micro_batch_rows: int
    chips: TrainingOnChips | None


@dataclass(frozen=True, kw_only=True)
class ExtractionTimes:
    """The time of an extraction on TPUs: reading weights, compiling, computing, uploading."""

    bandwidth: float
    reading_seconds: float
    writing_seconds: float
    computing_hours: Range
    hours: Range


@dataclass(frozen=True, kw_only=True)
class ExtractionOnChips:
    """An extraction on TPUs."""

    weight_bytes_per_chip: float
    hbm_gib: int
    times: ExtractionTimes | None
    """None: its FLOPs are not known."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of the chips and of a month of storage; None for one whose amount or storage price is unknown."""

    currency: str
    chips: Range | None
    storage_month: float | None


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """What the trainer's figures come to on the machines of a job; None for what it does not have."""

    training: TrainingOnDevices | None
    extraction: ExtractionOnChips | None
    """From the bounds."""
    forecast: ExtractionOnChips | None
    """From the forecast of an extraction."""
    cost: Cost | None


def estimate(job: TpuTrainingJob, facts: Facts, *, bandwidth: float, prices: Mapping[str, Any] | None) -> Estimates:
    """The estimates for a job.

    Args:
        job: The job.
        facts: The trainer's, about it.
        bandwidth: Bytes per second that a host of an extraction reads or writes.
        prices: As `read_prices` returns them; None: without the cost.

    Raises:
        CommandError: the prices lack the job's generation.
    """
    training = None if facts.training is None else training_on_devices(job, facts.training)
    extraction = None if facts.extraction is None else extraction_on_chips(job, facts.extraction, bandwidth)
    found = facts.forecast
    forecast = extraction_on_chips(job, found, bandwidth) if isinstance(found, ExtractionForecast) else None
    priced = None
    if prices is not None:
        timed = forecast.times if forecast is not None else training.chips if training is not None else None
        priced = cost(
            prices,
            job,
            hours=None if timed is None else timed.hours,
            num_bytes=None if found is None else found.output_bytes,
        )
    return Estimates(training=training, extraction=extraction, forecast=forecast, cost=priced)


def hours(generation: str, chips: int, flops: float) -> Range:
    """The minimum and maximum hours for so many floating-point operations."""
    low, high = (flops / (GENERATIONS[generation].peak_flops * chips * part) / 3600 for part in reversed(UTILISATION))
    return low, high


def training_on_devices(job: TpuTrainingJob, run: TrainingFigures) -> TrainingOnDevices:
    """The rows of each device, and on TPUs the hours and the memory of each chip."""
    accelerator = job.accelerator
    devices, chips = job.hosts * accelerator.devices_per_host, job.hosts * accelerator.chips_per_host
    on_chips = (
        TrainingOnChips(
            hours=hours(accelerator.generation, chips, run.flops),
            state_bytes_per_chip=run.state_bytes_per_device * devices / chips,
            hbm_gib=GENERATIONS[accelerator.generation].hbm_gib,
        )
        if accelerator.is_tpu
        else None
    )
    return TrainingOnDevices(
        rows_per_device=run.batch_size / devices,
        micro_batch_rows=run.batch_size // (job.spec.trainer or {}).get("gradientAccumulation", 1),
        chips=on_chips,
    )


def extraction_on_chips(
    job: TpuTrainingJob, found: ExtractionBounds | ExtractionForecast, bandwidth: float
) -> ExtractionOnChips | None:
    """The memory and time of an extraction's workers; None: the job has no TPUs.

    Args:
        job: The job; each of its hosts is a worker with all weights.
        found: The trainer's figures for it.
        bandwidth: Bytes that a host reads or writes in a second.
    """
    accelerator = job.accelerator
    if not accelerator.is_tpu:
        return None
    held, hbm_gib = found.weight_bytes / accelerator.chips_per_host, GENERATIONS[accelerator.generation].hbm_gib
    written = found.output_bytes if isinstance(found, ExtractionForecast) else found.value_bytes
    if found.flops is None or written is None:
        return ExtractionOnChips(weight_bytes_per_chip=held, hbm_gib=hbm_gib, times=None)
    reading, writing = found.weight_bytes / bandwidth, written / job.hosts / bandwidth
    computing = hours(accelerator.generation, job.hosts * accelerator.chips_per_host, found.flops)
    low, high = (
        (reading + compiling + max(writing, 3600 * each)) / 3600
        for compiling, each in zip(COMPILE_SECONDS, computing, strict=True)
    )
    times = ExtractionTimes(
        bandwidth=bandwidth,
        reading_seconds=reading,
        writing_seconds=writing,
        computing_hours=computing,
        hours=(low, high),
    )
    return ExtractionOnChips(weight_bytes_per_chip=held, hbm_gib=hbm_gib, times=times)


def read_prices(file: Path) -> dict[str, Any]:
    """A price table: `currency`, `chipHour` and `spotChipHour` by generation, `gibMonth` of storage.

    Raises:
        CommandError: it cannot be read, or has other keys or values.
    """
    try:
        found = read_value(text_of(file))
    except (OSError, ValueError) as error:
        raise CommandError(f"--prices: {file}: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("chipHour"), dict):
        raise CommandError(f"--prices: {file}: chipHour is missing; write `chipHour: {{v5e: 1.2}}`")
    for key in found:
        if key not in PRICES:
            raise CommandError(f"--prices: {file}: {key} is not known; these are: {', '.join(PRICES)}")
    numbers = [*found["chipHour"].values(), *(found.get("spotChipHour") or {}).values(), found.get("gibMonth", 0)]
    if wrong := [value for value in numbers if isinstance(value, bool) or not isinstance(value, int | float)]:
        raise CommandError(f"--prices: {file}: {wrong[0]!r} is not a number")
    return found


def cost(prices: Mapping[str, Any], job: TpuTrainingJob, *, hours: Range | None, num_bytes: int | None) -> Cost:
    """The cost of a job that takes so many hours and writes so many bytes.

    Raises:
        CommandError: the table has no price for the generation.
    """
    is_spot, generation = bool(job.spec.capacity and job.spec.capacity.spot), job.accelerator.generation
    key = "spotChipHour" if is_spot else "chipHour"
    table = prices.get(key) or {}
    if generation not in table:
        raise CommandError(f"--prices: {key} has no {generation}; it has {', '.join(table) or 'nothing'}")
    month, price = prices.get("gibMonth"), table[generation]
    chips = job.hosts * job.accelerator.chips_per_host
    return Cost(
        currency=prices.get("currency", ""),
        chips=None if hours is None else (hours[0] * chips * price, hours[1] * chips * price),
        storage_month=None if month is None or num_bytes is None else num_bytes / GIB * month,
    )
