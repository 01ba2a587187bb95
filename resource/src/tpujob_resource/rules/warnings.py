"""Warnings about settings that are allowed but probably not intended. Each rule yields messages; none refuses a job."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from tpujob_contract import storage_address
from tpujob_resource.messages.error_messages import quoted
from tpujob_resource.models.job import TpuTrainingJob, other_manager
from tpujob_resource.rules.maxtext import argument_warnings, restart_warnings
from tpujob_resource.rules.validation import volume_problems

type Warnings = Iterator[str]

PATHS = frozenset({"path", "tokenizer", "from", "weights"})
"""Keys of the trainer block whose value is a path that every pod reads."""
SPOT_SECONDS = 15
"""Grace period of an ordinary pod on a spot machine: cloud.google.com/kubernetes-engine/docs/concepts/spot-vms."""


def job_warnings(job: TpuTrainingJob, *, is_for_cluster: bool = False) -> tuple[str, ...]:
    """Warnings about a valid job before its pods start, one line each.

    Args:
        job: A valid job.
        is_for_cluster: Whether pods will run it; otherwise a job on CPU devices reads files of this machine, and
            reserves no resources.
    """
    has_pods = is_for_cluster or job.accelerator.is_tpu
    paths = _unreachable_paths(job) if has_pods else ()
    return (*(warning for rule in _RULES for warning in rule(job)), *paths)


def rehearsal_warnings(job: TpuTrainingJob) -> tuple[str, ...]:
    """Warnings about a TPU job that runs on CPU devices here, including problems that only pods would have."""
    return (*job_warnings(job), *volume_problems(job)) if job.accelerator.is_tpu else ()


def submission_warnings(job: TpuTrainingJob) -> tuple[str, ...]:
    """Warnings about a valid job before it is created on a cluster.

    In addition to `job_warnings`, these include what can be changed only before creation: an existing job keeps the
    sizes of its pods, so its status does not repeat that warning.
    """
    return (*job_warnings(job, is_for_cluster=True), *_unsized_pods(job))


def _unsaved(job: TpuTrainingJob) -> Warnings:
    # Another program may know itself where to save.
    saves = job.spec.trainer is not None or job.spec.framework == "maxtext"
    if saves and job.spec.checkpoint_dir is None and job.accelerator.is_tpu:
        yield (
            "spec.checkpointDir: is missing, so nothing outlives a pod and every restart begins at step 0; "
            "give gs://BUCKET/PATH"
        )


def _unreachable_paths(job: TpuTrainingJob) -> Warnings:
    mounts = [volume.mount_path for volume in job.spec.volumes or ()]
    for field, path in _places(job.spec.trainer or {}, "spec.trainer"):
        if not path.startswith("/"):
            yield f"{field}: {quoted(path)} is relative, and pods have no such folder; give gs://BUCKET/PATH"
        elif not any(PurePosixPath(path).is_relative_to(mount) for mount in mounts) and job.spec.image is None:
            yield f"{field}: {quoted(path)} is on no volume of the job (spec.volumes), and the image does not have it"


def _places(block: Any, field: str) -> Iterator[tuple[str, str]]:
    """Local paths in a block, each with its field."""
    if isinstance(block, list):
        for i, each in enumerate(block):
            yield from _places(each, f"{field}[{i}]")
    if not isinstance(block, Mapping):
        return
    for key, value in block.items():
        if key in PATHS:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, str) and _is_local(key, each):
                    yield f"{field}.{key}", each
        else:
            yield from _places(value, f"{field}.{key}")


def _is_local(key: str, value: str) -> bool:
    return storage_address.is_path(value) and not (key == "tokenizer" and value == "bytes")


def _unsized_pods(job: TpuTrainingJob) -> Warnings:
    # Pods of TPU jobs request most of their machine by default; see jobset/pod.
    if job.spec.resources is None and not job.accelerator.is_tpu:
        yield (
            "spec.resources: is missing, so the pods reserve no processors and no memory, and are the "
            'first to be evicted; give requests: {cpu: 4, memory: "8Gi"}, for instance'
        )


def _spot_grace(job: TpuTrainingJob) -> Warnings:
    spec = job.spec
    is_asked = "grace_period_seconds" in spec.model_fields_set and spec.grace_period_seconds > SPOT_SECONDS
    if is_asked and spec.capacity is not None and spec.capacity.spot:
        yield (
            f"spec.gracePeriodSeconds: {spec.grace_period_seconds}, and pods on spot machines get {SPOT_SECONDS}; "
            "keep checkpoints so small, or saves so frequent, that this is enough"
        )


def _script_without_interpreter(job: TpuTrainingJob) -> Warnings:
    first, *rest = job.spec.command or [""]
    if first.endswith(".py") and "/" not in first:
        words = ", ".join(["python3", first, *rest])
        yield f"spec.command: {quoted(first)} starts only where it is a program on PATH; for a script write [{words}]"


def _run_elsewhere(job: TpuTrainingJob) -> Warnings:
    manager = other_manager(job.spec.managed_by)
    if manager is not None:
        yield (
            f"spec.managedBy: {quoted(manager)} runs this job; the operator of the cluster where it is created makes "
            "no pods for it"
        )


_RULES: tuple[Callable[[TpuTrainingJob], Warnings], ...] = (
    _unsaved,
    _spot_grace,
    _script_without_interpreter,
    argument_warnings,
    restart_warnings,
    _run_elsewhere,
)
