"""Volumes of a pod, and their mounts in the main container: the operator's own, then those of the job."""

from pathlib import PurePosixPath
from typing import Any

from tpujob_contract import commands, job_code
from tpujob_resource.jobset.environment import HOME
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.volumes import Volume
from tpujob_resource.topology import machines

type Object = dict[str, Any]

LAUNCHER = "launcher"
CODE = "code"
SHARED_MEMORY = "shared-memory"
GCS_DRIVER = "gcsfuse.csi.storage.gke.io"
GCS_ANNOTATION = "gke-gcsfuse/volumes"
"""On pods: makes GKE add the sidecar that the driver needs (cloud.google.com/kubernetes-engine, Cloud Storage FUSE)."""


def build_volumes(job: TpuTrainingJob) -> list[Object]:
    """The pod's volumes."""
    own = [{"name": name, "emptyDir": _empty_dir(job, name)} for name in _own_mounts(job)]
    return own + [{"name": volume.name, **_source(volume)} for volume in job.spec.volumes or ()]


def build_mounts(job: TpuTrainingJob) -> list[Object]:
    """The mounts of the main container."""
    own = [(name, path, name in (LAUNCHER, CODE)) for name, path in _own_mounts(job).items()]
    theirs = [(v.name, v.mount_path, v.read_only or bool(v.secret or v.config_map)) for v in job.spec.volumes or ()]
    return [
        {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}
        for name, path, read_only in (*own, *theirs)
    ]


def volume_annotations(job: TpuTrainingJob) -> dict[str, str]:
    """Annotations that pods need for their volumes."""
    return {GCS_ANNOTATION: "true"} if any(volume.gcs for volume in job.spec.volumes or ()) else {}


def _own_mounts(job: TpuTrainingJob) -> dict[str, str]:
    """Mount paths of the operator's own volumes, by name; all are emptyDir volumes."""
    mounts = {"tmp": "/tmp", "home": HOME}  # noqa: S108 — the pod's own
    if job.accelerator.is_tpu:
        mounts[SHARED_MEMORY] = "/dev/shm"  # noqa: S108 — the pod's own
    if job.spec.trainer is None:
        mounts[LAUNCHER] = commands.CARRIED_DIRECTORY
    if job.spec.code is not None:
        mounts[CODE] = job_code.DIRECTORY
    return mounts


def _empty_dir(job: TpuTrainingJob, name: str) -> Object:
    if name != SHARED_MEMORY or job.accelerator.machine_type is None:
        return {}
    return {"medium": "Memory", "sizeLimit": machines.shared_memory(job.accelerator.machine_type)}


def _source(volume: Volume) -> Object:
    if volume.persistent_volume_claim is not None:
        claim = {"claimName": volume.persistent_volume_claim}
        return {"persistentVolumeClaim": claim | ({"readOnly": True} if volume.read_only else {})}
    if volume.gcs is not None:
        options = {"mountOptions": volume.gcs.mount_options} if volume.gcs.mount_options else {}
        attributes = {"bucketName": volume.gcs.bucket, **options}
        return {"csi": {"driver": GCS_DRIVER, "readOnly": volume.read_only, "volumeAttributes": attributes}}
    if volume.secret is not None:
        return {"secret": {"secretName": volume.secret}}
    if volume.config_map is not None:
        return {"configMap": {"name": volume.config_map}}
    assert volume.empty_dir is not None  # the rules require one of the kinds
    return {"emptyDir": volume.empty_dir.model_dump(by_alias=True, exclude_none=True)}


def code_volume(job: TpuTrainingJob) -> Volume | None:
    """The volume with the job's code; None: no volume has it, it comes over the network, or the job has none."""
    path = job.spec.code.path if job.spec.code is not None else None
    if path is None:
        return None
    around = [volume for volume in job.spec.volumes or () if PurePosixPath(path).is_relative_to(volume.mount_path)]
    return max(around, key=lambda volume: len(volume.mount_path), default=None)
