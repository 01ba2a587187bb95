"""Folders of this machine as volumes of jobs: a PersistentVolume each, and a claim on it in the job's namespace."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.jobs import Jobs

SIZE = "1Gi"
"""A claim asks for some; a folder has no limit."""


@contextmanager
def claimed(jobs: Jobs, folders: dict[str, Path]) -> Iterator[None]:
    """Claims of these names for the jobs of a namespace, each on a folder; what is in the folders stays."""
    volumes = {name: f"{jobs.namespace}-{name}" for name in folders}
    try:
        for name, folder in folders.items():
            jobs.cluster.apply(_volume(volumes[name], folder))
            jobs.cluster.apply(_claim(name, jobs.namespace, volumes[name]))
        yield
    finally:
        for volume in volumes.values():
            jobs.cluster.kubectl("delete", "persistentvolume", volume, "--ignore-not-found", "--wait=false")


def writable(folder: Path) -> Path:
    """A new folder that pods, which run as another user, may write to."""
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def _volume(name: str, folder: Path) -> dict[str, Any]:
    spec = {
        "capacity": {"storage": SIZE},
        "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "hostPath": {"path": str(folder), "type": "Directory"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}


def _claim(name: str, namespace: str, volume: str) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "volumeName": volume,
        "resources": {"requests": {"storage": SIZE}},
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
