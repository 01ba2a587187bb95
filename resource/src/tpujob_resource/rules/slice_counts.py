"""With how many slices a job may run: `spec.slices`, or fewer where `spec.minSlices` allows it."""

from __future__ import annotations

from collections.abc import Iterator

from tpujob_resource.errors import InvalidField
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.spec import Spec
from tpujob_resource.rules.trainer_rules import rows_divide

SHRINK_AFTER_SECONDS = 300
"""Machines that come at all on demand come within minutes; hosts that wait for their peers end after startupSeconds."""

type Problems = Iterator[str]


def shrink_after_seconds(spec: Spec) -> int:
    """How long a missing slice is waited for, and how long the job stays as small as it is."""
    return SHRINK_AFTER_SECONDS if spec.shrink_after_seconds is None else spec.shrink_after_seconds


def possible_counts(job: TpuTrainingJob) -> tuple[int, ...]:
    """Numbers of slices that a job may run with, the largest first: the rows of its batch divide over each of them."""
    least = job.spec.min_slices or job.slices
    return tuple(count for count in range(job.slices, least - 1, -1) if _divides(job, count))


def slice_counts(job: TpuTrainingJob) -> Problems:
    """What contradicts `spec.minSlices`."""
    spec, field = job.spec, "spec.minSlices"
    if spec.min_slices is None:
        for name, value in (
            ("shrinkAfterSeconds", spec.shrink_after_seconds),
            ("growAfterSeconds", spec.grow_after_seconds),
        ):
            if value is not None:
                yield f"spec.{name}: needs minSlices, the number of slices that the job may go on with"
        return
    if job.slices < 2:
        yield f"{field}: needs slices, and at least 2; a job of one slice has none to go on without"
    elif spec.min_slices > job.slices:
        yield f"{field}: {spec.min_slices} is more than slices ({job.slices}); lower it"
    if spec.checkpoint_dir is None:
        yield f"{field}: needs checkpointDir, from which the job goes on with another number of slices"
    if spec.queue is not None:
        yield f"{field}: excludes queue, as Kueue admits all slices of a job or none; leave one of them out"
    if shrink_after_seconds(spec) >= spec.startup_seconds:
        yield (
            f"spec.shrinkAfterSeconds: {shrink_after_seconds(spec)} is not less than startupSeconds "
            f"({spec.startup_seconds}), after which hosts that wait for the missing ones fail; raise startupSeconds or "
            "lower it"
        )
    yield from _rows(job, spec.min_slices)


def _rows(job: TpuTrainingJob, least: int) -> Problems:
    """Counts in between over which the batch does not divide are passed over; the least one must be usable."""
    if least >= job.slices or not _divides(job, job.slices) or _divides(job, least):
        return
    works = [str(count) for count in range(1, job.slices) if _divides(job, count)]
    instead = f"{', '.join(works)} would do" if works else "no smaller number would do: change batchSize"
    yield (
        f"spec.minSlices: the rows of a batch (spec.trainer.batchSize) do not divide over the devices of {least} "
        f"slices; {instead}"
    )


def _divides(job: TpuTrainingJob, slices: int) -> bool:
    """Whether the batch divides over so many slices; of a command, and of a wrong accelerator, that is not known."""
    if job.spec.trainer is None:
        return True
    try:
        accelerator = job.accelerator
    except InvalidField:
        return True
    of_slice = accelerator.hosts_per_slice * accelerator.devices_per_host
    return rows_divide(job.spec.trainer, slices * of_slice, slices)
