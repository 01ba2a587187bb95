"""The numbers of slices with which a job may run: `spec.slices`, or fewer if `spec.minSlices` allows it."""

from collections.abc import Iterator

from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.spec import Spec
from tpujob_resource.rules.table import SHRINK_AFTER_SECONDS
from tpujob_resource.rules.trainer_rules import rows_divide
from tpujob_resource.topology.errors import InvalidField

type Problems = Iterator[str]


def shrink_after_seconds(spec: Spec) -> int:
    """How long a job waits for a missing slice, and the least time with fewer slices before it grows again."""
    return SHRINK_AFTER_SECONDS if spec.shrink_after_seconds is None else spec.shrink_after_seconds


def possible_counts(job: TpuTrainingJob) -> tuple[int, ...]:
    """The numbers of slices with which a job may run, largest first: the rows of its batch divide over each of them."""
    least = job.spec.min_slices or job.slices
    return tuple(count for count in range(job.slices, least - 1, -1) if _divides(job, count))


def rows_of_fewest_slices(job: TpuTrainingJob) -> Problems:
    """An error message if the job cannot run with `spec.minSlices`.

    Numbers in between over which the rows do not divide are skipped, but the smallest must be usable.
    """
    least = job.spec.min_slices
    if least is None or least >= job.slices or not _divides(job, job.slices) or _divides(job, least):
        return
    works = [str(count) for count in range(1, job.slices) if _divides(job, count)]
    instead = f"{', '.join(works)} would do" if works else "no smaller number would do: change batchSize"
    yield (
        f"spec.minSlices: the rows of a batch (spec.trainer.batchSize) do not divide over the devices of {least} "
        f"slices; {instead}"
    )


def _divides(job: TpuTrainingJob, slices: int) -> bool:
    """Whether the batch divides over this many slices; True for a job without a trainer or with a wrong accelerator."""
    if job.spec.trainer is None:
        return True
    try:
        accelerator = job.accelerator
    except InvalidField:
        return True
    of_slice = accelerator.hosts_per_slice * accelerator.devices_per_host
    return rows_divide(job.spec.trainer, slices * of_slice, slices)
