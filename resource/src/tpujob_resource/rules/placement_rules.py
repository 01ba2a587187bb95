"""Rules for where slices lie: Kueue's topology levels, sub-slices and super-slices. Each yields sentences."""

from __future__ import annotations

from collections.abc import Iterator

from tpujob_resource.errors import InvalidField
from tpujob_resource.messages.error_messages import shown
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.topology.parse import Accelerator

MAX_SUPER_SLICE_NAME = 28
"""The slice controller makes names from the job's (AI-Hypercomputer/xpk:src/xpk/core/scheduling.py)."""
SUB_SLICES, SUPER_SLICES = "v6e", "tpu7x"
"""The generations that have them."""

type Problems = Iterator[str]


def placement(job: TpuTrainingJob) -> Problems:
    """`spec.placement` against the queue, the accelerator and the name."""
    asked = job.spec.placement
    if asked is None:
        return
    fields = {
        "requiredTopology": asked.required_topology is not None,
        "poolTopology": asked.pool_topology is not None,
        "superSlice": bool(asked.super_slice),
    }
    chosen = [name for name, is_chosen in fields.items() if is_chosen]
    if len(chosen) > 1:
        yield f"spec.placement: {' and '.join(chosen)} exclude each other; keep one"
    for name in chosen:
        if job.spec.queue is None:
            yield f"spec.placement.{name}: is for Kueue, and the job has no queue; set queue, or leave it out"
        if job.spec.workers is not None:
            yield f"spec.placement.{name}: is for hosts that talk to each other; workers do not"
    try:
        accelerator = job.accelerator
    except InvalidField:
        return  # said by the rule for the accelerator
    if asked.pool_topology is not None:
        yield from _sub_slice(accelerator, asked.pool_topology)
    if asked.super_slice:
        yield from _super_slice(accelerator, job.metadata.name)


def _sub_slice(accelerator: Accelerator, pool: str) -> Problems:
    field = f"spec.placement.poolTopology: {shown(pool)}"
    if accelerator.generation != SUB_SLICES:
        yield f"{field}: sub-slices are for {SUB_SLICES}, and this is {accelerator.generation}; leave it out"
        return
    slice_shape, pool_shape = _shape(accelerator.topology), _shape(pool)
    is_part = len(pool_shape) == len(slice_shape) and all(
        whole % part == 0 for part, whole in zip(slice_shape, pool_shape, strict=True)
    )
    if not is_part or pool_shape == slice_shape:
        yield f"{field}: cannot be divided into several slices of {accelerator.topology}; give the pool's topology"


def _super_slice(accelerator: Accelerator, name: str) -> Problems:
    field = "spec.placement.superSlice"
    if accelerator.generation != SUPER_SLICES:
        yield f"{field}: is for {SUPER_SLICES}, and this is {accelerator.generation}; leave it out"
    elif any(length % 4 for length in _shape(accelerator.topology)):
        yield f"{field}: slices are made of cubes of 4x4x4 chips, and {accelerator.topology} is not; leave it out"
    if len(name) > MAX_SUPER_SLICE_NAME:
        yield f"metadata.name: {shown(name)} has {len(name)} characters; with superSlice at most {MAX_SUPER_SLICE_NAME}"


def _shape(topology: str) -> tuple[int, ...]:
    return tuple(int(length) for length in topology.split("x"))
