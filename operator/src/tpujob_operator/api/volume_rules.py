"""Rules for volumes, and for a checkpoint directory that lies on one. Each yields sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from tpujob_operator.api.container_rules import quantity
from tpujob_operator.api.error_messages import shown
from tpujob_operator.api.job import TpuTrainingJob
from tpujob_operator.api.volumes import KINDS, OWN_MOUNTS, OWN_NAMES, SHARED, Volume

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
    if directory is None or not directory.startswith("/") or job.spec.accelerator.startswith("cpu:"):
        return
    volume = _volume_of(job, directory)
    if volume is None:
        yield (
            f"spec.checkpointDir: {shown(directory)} is on no volume, and would be lost with the pod; take "
            "gs://BUCKET/PATH, or mount a persistentVolumeClaim or gcs volume there (spec.volumes)"
        )
    elif not set(_kinds(volume)) & set(SHARED):
        yield (
            f"spec.checkpointDir: {shown(directory)} is on volume {volume.name}, which does not outlive the pod; take "
            "gs://BUCKET/PATH, or a persistentVolumeClaim or gcs volume"
        )
    elif volume.read_only:
        yield f"spec.checkpointDir: {shown(directory)} is on volume {volume.name}, which is readOnly; drop readOnly"


def _volume_of(job: TpuTrainingJob, directory: str) -> Volume | None:
    """The volume with the longest mount path that holds the directory."""
    inside = [v for v in job.spec.volumes or () if PurePosixPath(directory).is_relative_to(v.mount_path)]
    return max(inside, key=lambda volume: len(volume.mount_path), default=None)


def _kinds(volume: Volume) -> list[str]:
    return [kind for kind in KINDS if getattr(volume, kind) is not None]
