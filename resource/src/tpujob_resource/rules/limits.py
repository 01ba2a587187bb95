"""Limits on the size of a job: for the stored spec, and those of the administrator."""

from collections.abc import Iterator

from tpujob_resource.models import decoding
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.topology.errors import InvalidField

type Problems = Iterator[str]


def spec_size(job: TpuTrainingJob) -> Problems:
    """Checks the size of the whole spec; the message names its largest field."""
    spec = job.spec.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    try:
        sizes = {key: decoding.json_size(value) for key, value in spec.items()}
    except (TypeError, ValueError):
        return  # reported by the rule for the trainer block
    yield from decoding.size_problems("spec", sizes)


def broken_limits(job: TpuTrainingJob, settings: JobSettings) -> tuple[str, ...]:
    """Error messages for a job that exceeds the limits of this installation."""
    return tuple(_administrators(job, settings))


def _administrators(job: TpuTrainingJob, settings: JobSettings) -> Problems:
    try:
        accelerator = job.accelerator
    except InvalidField:
        return
    field = "workers" if job.spec.workers is not None else "slices" if job.slices > 1 else "accelerator"
    if job.hosts > settings.max_pods:
        yield f"spec.{field}: makes {job.hosts} pods, and this cluster's operator allows {settings.max_pods} per job"
    chips = job.hosts * accelerator.chips_per_host if accelerator.is_tpu else 0
    if chips > settings.max_chips:
        yield f"spec.{field}: makes {chips} chips, and this cluster's operator allows {settings.max_chips} per job"
