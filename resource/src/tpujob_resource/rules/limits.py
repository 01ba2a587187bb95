"""Limits on the size of a job: for the stored spec, and those of the administrator."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tpujob_resource.errors import InvalidField
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings

MAX_SPEC_BYTES = 65536
"""Most bytes of the spec as JSON: it is copied to the JobSet and to every pod, of which there may be thousands."""

type Problems = Iterator[str]


def spec_size(job: TpuTrainingJob) -> Problems:
    """Checks the whole spec against `MAX_SPEC_BYTES`; the message names its largest field."""
    spec = job.spec.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    try:
        sizes = {key: len(json.dumps(value, ensure_ascii=False).encode()) for key, value in spec.items()}
    except (TypeError, ValueError):
        return  # reported by the rule for the trainer block
    total = sum(sizes.values())
    if total > MAX_SPEC_BYTES:
        largest = max(sizes, key=lambda key: sizes[key])
        yield (
            f"spec.{largest}: the spec is {total} bytes of JSON, {sizes[largest]} of them here; at most "
            f"{MAX_SPEC_BYTES}, as every pod repeats it: put data in the image, a ConfigMap or the bucket"
        )


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
