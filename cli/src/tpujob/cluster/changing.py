"""Stops, resumes and retries a job: one field of the spec each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpujob.cluster.client import Cluster, Object
from tpujob.errors import CommandError
from tpujob_resource.models.phases import TERMINAL


def stop(cluster: Cluster, name: str) -> Object:
    """Asks a job to save and stop; returns the job.

    Raises:
        CommandError: there is none, or it has ended.
    """
    _require_unfinished(cluster.job(name), "stop")
    return cluster.patch(cluster.job_path(name), {"spec": {"suspend": True}})


def resume(cluster: Cluster, name: str) -> Object:
    """Asks a stopped job to continue; returns the job.

    Raises:
        CommandError: there is none, it has ended, or it is not stopped.
    """
    job = cluster.job(name)
    _require_unfinished(job, "resume")
    if not job["spec"].get("suspend"):
        raise CommandError(f"{name}: is not stopped; `tpujob describe {name}` says how it stands")
    return cluster.patch(cluster.job_path(name), {"spec": {"suspend": False}})


def retry(cluster: Cluster, name: str) -> Object:
    """Increments a job's `spec.retry`, so that it restarts from its last checkpoint; returns the job.

    Raises:
        CommandError: there is none, or it has not ended.
    """
    job = cluster.job(name)
    phase = (job.get("status") or {}).get("phase")
    if phase not in TERMINAL:
        raise CommandError(f"{name}: has not ended (it is {phase or 'not seen by the operator yet'}); nothing to retry")
    number = (job["spec"].get("retry") or 0) + 1
    return cluster.patch(cluster.job_path(name), {"spec": {"retry": number}})


def _require_unfinished(job: Mapping[str, Any], verb: str) -> None:
    phase = (job.get("status") or {}).get("phase")
    if phase in TERMINAL:
        raise CommandError(f"cannot {verb}: the job has ended as {phase}; `tpujob retry` starts it anew")
