"""Rules for volumes, and for what must lie on one that lasts. Each yields sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from tpujob_resource.messages.error_messages import shown
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.volumes import KINDS, OWN_MOUNTS, OWN_NAMES, SHARED, Volume
from tpujob_resource.rules.container_rules import quantity

type Problems = Iterator[str]


def volumes(job: TpuTrainingJob) -> Problems:
    """Each volume is of one kind, and has a name and a path to itself."""
    seen: set[str] = set()
    for i, volume in enumerate(job.spec.volumes or ()):
        path = f"spec.volumes[{i}]"
        if len(_kinds(volume)) != 1:
            yield f"{path}: give one of persistentVolumeClaim, gcs, secret, configMap and emptyDir"
        for field, value, taken in (("name", volume.name, OWN_NAMES), ("mountPath", volume.mount_path, OWN_MOUNTS)):
            if value in taken:
                yield f"{path}.{field}: {value} is the operator's own; take another"
            if value in seen:
                yield f"{path}.{field}: {value} is there twice; keep one"
            seen.add(value)
        if ".." in PurePosixPath(volume.mount_path).parts:
            yield f"{path}.mountPath: {shown(volume.mount_path)} contains ..; write the directory that is meant"
        limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
        if limit is not None and quantity(limit) is None:
            yield f'{path}.emptyDir.sizeLimit: {shown(limit)} is not an amount such as "100Gi"'


def checkpoint_volume(job: TpuTrainingJob) -> Problems:
    """A directory of a TPU job lies in a bucket, or on a volume that outlives the pods and can be written."""
    directory = job.spec.checkpoint_dir
    if directory is not None and directory.startswith("/"):
        yield from _lasting(job, "spec.checkpointDir", directory, "gs://BUCKET/PATH, or ")


def copies_volume(job: TpuTrainingJob) -> Problems:
    """The copies between two checkpoints lie on such a volume, too: a failure makes new pods."""
    trainer = job.spec.trainer or {}
    checkpoint = trainer.get("checkpoint")
    local = checkpoint.get("local") if isinstance(checkpoint, dict) else None
    directory = local.get("dir") if isinstance(local, dict) else None
    if isinstance(directory, str) and directory.startswith("/"):
        yield from _lasting(job, "spec.trainer.checkpoint.local.dir", directory, "")


def _lasting(job: TpuTrainingJob, field: str, directory: str, rather: str) -> Problems:
    """Why a directory of a TPU job is lost with the pod, or cannot be written."""
    if job.spec.accelerator.startswith("cpu:"):
        return
    volume = _volume_of(job, directory)
    if volume is None:
        yield (
            f"{field}: {shown(directory)} is on no volume, and would be lost with the pod; "
            f"{f'take {rather}' if rather else ''}mount a persistentVolumeClaim or gcs volume there (spec.volumes)"
        )
    elif not set(_kinds(volume)) & set(SHARED):
        yield (
            f"{field}: {shown(directory)} is on volume {volume.name}, which does not outlive the pod; take "
            f"{rather}a persistentVolumeClaim or gcs volume"
        )
    elif volume.read_only:
        yield f"{field}: {shown(directory)} is on volume {volume.name}, which is readOnly; drop readOnly"


def code_place(job: TpuTrainingJob) -> Problems:
    """Code of the job that does not come over the network lies on a volume that the pods mount."""
    code = job.spec.code
    if code is None or code.path is None:
        return
    field, other = ("repository", "https://HOST/PATH") if code.repository else ("archive", "gs://BUCKET/PATH")
    if ".." in PurePosixPath(code.path).parts:
        yield f"spec.code.{field}: {shown(code.path)} contains ..; write the path that is meant"
    elif code_volume(job) is None and not job.spec.accelerator.startswith("cpu:"):
        yield (
            f"spec.code.{field}: {shown(code.path)} is on no volume of the job; take {other}, or mount the "
            "volume that holds it (spec.volumes)"
        )


def code_volume(job: TpuTrainingJob) -> Volume | None:
    """The volume that holds the job's code; None when it comes over the network, or the job has none."""
    code = job.spec.code
    return None if code is None or code.path is None else _volume_of(job, code.path)


def _volume_of(job: TpuTrainingJob, directory: str) -> Volume | None:
    """The volume with the longest mount path that holds the directory."""
    inside = [v for v in job.spec.volumes or () if PurePosixPath(directory).is_relative_to(v.mount_path)]
    return max(inside, key=lambda volume: len(volume.mount_path), default=None)


def _kinds(volume: Volume) -> list[str]:
    return [kind for kind in KINDS if getattr(volume, kind) is not None]
