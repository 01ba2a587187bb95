"""Volumes of `spec`, which are mounted into the main container of every pod."""

from typing import Annotated, Literal

from pydantic import StringConstraints

from tpujob_resource.models.fields import ObjectName, Part, Quantity

BucketName = Annotated[str, StringConstraints(min_length=3, max_length=222, pattern=r"^[a-z0-9][a-z0-9._-]*[a-z0-9]$")]
MountPath = Annotated[str, StringConstraints(min_length=2, max_length=1024, pattern=r"^/[^:\x00]+$")]
VolumeName = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


class GcsVolume(Part):
    """A Cloud Storage bucket as a file system, by the GCS FUSE driver of GKE."""

    bucket: BucketName
    """Name of the bucket, without gs://."""
    mount_options: Annotated[str, StringConstraints(max_length=1024)] | None = None
    """Options of the driver, separated by commas, such as implicit-dirs,only-dir=llama."""


class EmptyDirVolume(Part):
    """Space of the pod's own, empty at its start."""

    medium: Literal["Memory"] | None = None
    """Memory counts as the pod's memory. Default: the node's disk."""
    size_limit: Quantity | None = None
    """Bytes it may hold, such as 100Gi. Default: no limit."""


class Volume(Part):
    """One volume: a name, where it is mounted, and exactly one of the kinds."""

    name: VolumeName
    """Name of the volume in the pod."""
    mount_path: MountPath
    """Absolute path in the main container."""
    read_only: bool = False
    """Whether it can only be read. Default false; secrets and ConfigMaps are never written."""
    persistent_volume_claim: ObjectName | None = None
    """Name of a PersistentVolumeClaim of the job's namespace; for checkpoints, one that all hosts can mount."""
    gcs: GcsVolume | None = None
    """A Cloud Storage bucket."""
    secret: ObjectName | None = None
    """Name of a Secret of the job's namespace; each key is a file."""
    config_map: ObjectName | None = None
    """Name of a ConfigMap of the job's namespace; each key is a file."""
    empty_dir: EmptyDirVolume | None = None
    """Space of the pod's own."""


OWN_MOUNTS = ("/tmp", "/home/tpujob", "/dev/shm", "/tpujob", "/tpujob-code")  # noqa: S108 — of the pods
"""Paths that the operator mounts."""
OWN_NAMES = ("tmp", "home", "shared-memory", "launcher", "code")
