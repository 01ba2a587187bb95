"""Memory and time of an extraction on TPUs, by arithmetic: reading weights, compiling, computing, uploading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tpujob.output.words import counted, digit_range, magnitude, size, time_range
from tpujob.questions.forecast import GIB, UTILISATION, hours
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.topology.tables import GENERATIONS

MEGABYTE = 1e6
BANDWIDTH = 200 * MEGABYTE
"""Assumed between a host and a bucket, in bytes a second."""
COMPILE_SECONDS = (30, 180)
"""Assumed for the programs of an extraction, of which there is one for each length of rows."""


def on_tpu(job: TpuTrainingJob, found: Mapping[str, Any], bandwidth: float) -> dict[str, Any]:
    """The memory and time of an extraction's workers; empty if the job has no TPUs.

    Args:
        job: The job; each of its hosts is a worker with all weights.
        found: The trainer's figures for it.
        bandwidth: Bytes that a host reads or writes in a second.
    """
    accelerator = job.accelerator
    if not accelerator.is_tpu:
        return {}
    facts = {
        "weight_bytes_per_chip": found["weight_bytes"] / accelerator.chips_per_host,
        "hbm_gib": GENERATIONS[accelerator.generation].hbm_gib,
    }
    if found.get("flops") is None:
        return facts
    chips = job.hosts * accelerator.chips_per_host
    reading = found["weight_bytes"] / bandwidth
    writing = found.get("output_bytes", found["value_bytes"]) / job.hosts / bandwidth
    computing = hours(accelerator.generation, chips, found["flops"])
    seconds = [
        reading + compiling + max(writing, 3600 * each)
        for compiling, each in zip(COMPILE_SECONDS, computing, strict=True)
    ]
    return facts | {
        "bandwidth": bandwidth,
        "reading_seconds": reading,
        "writing_seconds": writing,
        "computing_hours": computing,
        "hours": [each / 3600 for each in seconds],
    }


def describe_bounds(found: Mapping[str, Any], chips: int) -> Iterator[str]:
    """Upper bounds of an extraction, in lines; the figures of `--data` are closer, and have their own lines."""
    each = f"up to {found['sequence_length']:,} tokens and {size(found['row_bytes'])} of values before compression"
    if found["rows"] is None:
        yield f"extraction: all rows of the data, each of {each}; --data counts them"
        yield from describe_on_tpu(found, chips)
        return
    total = f"up to {magnitude(found['tokens'])} tokens and {size(found['value_bytes'])}"
    yield f"extraction: at most {counted(found['rows'], 'row')} of {each}: {total} in all; --data says more"
    yield from describe_on_tpu(found, chips, bound="at most ")


def describe_on_tpu(found: Mapping[str, Any], chips: int, bound: str = "") -> Iterator[str]:
    """Memory and time in lines, as far as they are known; `bound` precedes the figures that are upper bounds."""
    if "weight_bytes_per_chip" in found:
        held, has = found["weight_bytes_per_chip"] / GIB, found["hbm_gib"]
        rest = "activations come on top" if held < has else "they do not fit; take hosts with more chips"
        yield f"memory: weights take {held:.2f} of {has} GiB of each chip; {rest}"
    if "hours" not in found:
        return
    parts = f"{UTILISATION[1]:.0%} to {UTILISATION[0]:.0%}"
    low, high = (3600 * each for each in found["hours"])
    yield f"time: {bound}{time_range(low, high)}, of which each host"
    rate = f"{found['bandwidth'] / MEGABYTE:,.0f} MB/s, --bandwidth"
    reading, writing = (time_range(found[name], found[name]) for name in ("reading_seconds", "writing_seconds"))
    yield f"  reads weights for {reading} ({rate}) and compiles for {time_range(*COMPILE_SECONDS)} (assumed),"
    computing = time_range(*(3600 * each for each in found["computing_hours"]))
    yield f"  then computes for {computing}, at {parts} of the chips' peak, and uploads for {writing} beside it"
    yield f"chip-hours: {bound}{digit_range(*(each * chips for each in found['hours']))}"
