"""Which host of which JobSet a pod is. Anyone can write labels, so they must agree with the pod's owner."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_operator.observe.untrusted import parse_count


@dataclass(frozen=True, kw_only=True, slots=True)
class PodPlace:
    """The place of a pod in its job."""

    pod: str
    slice_index: int
    host_index: int
    attempt: int
    """JobSet's restart attempt, from 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodIdentity(PodPlace):
    """The place of a pod in the job of this JobSet."""

    jobset_uid: str


def pod_identity(pod: Mapping[str, Any]) -> PodIdentity | None:
    """The identity of a pod; None: its labels do not have it, or the Job that they name does not own the pod."""
    metadata = pod["metadata"]
    found = metadata.get("labels") or {}
    slice_index = parse_count(found.get(kubernetes_names.JOB_INDEX))
    host_index = parse_count(found.get(kubernetes_names.COMPLETION_INDEX))
    attempt = parse_count(found.get(kubernetes_names.RESTART_ATTEMPT, "0"))
    if slice_index is None or host_index is None or attempt is None:
        return None
    job = f"{found.get(kubernetes_names.JOBSET_NAME, '')}-{kubernetes_names.REPLICATED_JOB}-{slice_index}"
    if not _is_owned_by_job(metadata, job):
        return None
    return PodIdentity(
        pod=metadata["name"],
        slice_index=slice_index,
        host_index=host_index,
        attempt=attempt,
        jobset_uid=found.get(kubernetes_names.JOBSET_UID, ""),
    )


def _is_owned_by_job(metadata: Mapping[str, Any], name: str) -> bool:
    return any(
        owner.get("controller") and owner.get("kind") == "Job" and owner.get("name") == name
        for owner in metadata.get("ownerReferences") or []
    )
