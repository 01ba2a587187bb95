"""The fields of a pod that decisions need; only these are kept, of thousands of pods."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_operator.observe.from_objects import host_from_pod, placed_at
from tpujob_operator.observe.pod_identity import pod_identity
from tpujob_operator.observe.state import Host, JobSetState


@dataclass(frozen=True, kw_only=True, slots=True)
class PodState:
    """A pod that is a host of some JobSet."""

    host: Host
    jobset: str
    """Name of its JobSet."""
    jobset_uid: str
    phase: str
    being_deleted: bool
    node: str | None
    placed_at: datetime | None
    """When it was scheduled on its node; None: it has none, or the time is unknown."""
    version: int = field(default=0, compare=False)
    """The resource version: of two states of a pod the larger one is the newer."""

    @property
    def is_there_to_stay(self) -> bool:
        """Whether it counts as a host of the newest attempt."""
        return not self.being_deleted and self.phase != "Failed"

    @property
    def is_left(self) -> bool:
        """Whether something may still run in it.

        An ended pod may exist for as long as its job is suspended: the Job controller keeps one for each index that is
        to be replaced, to count it.
        """
        return self.phase not in ("Succeeded", "Failed")

    def is_of(self, jobset: JobSetState) -> bool:
        """Whether this is one of the hosts of this very JobSet."""
        return (
            self.jobset_uid == jobset.uid
            and self.jobset == jobset.name
            and self.host.slice_index < jobset.slices
            and self.host.host_index < jobset.hosts_per_slice
        )


def pod_state(pod: Mapping[str, Any]) -> PodState | None:
    """The state of a pod; None: it is no host of a JobSet."""
    identity = pod_identity(pod)
    if identity is None:
        return None
    metadata = pod["metadata"]
    node = (pod.get("spec") or {}).get("nodeName")
    return PodState(
        host=host_from_pod(pod),
        # Equal for all pods of a job, or of a node: kept once.
        jobset=sys.intern(metadata["labels"][kubernetes_names.JOBSET_NAME]),
        jobset_uid=sys.intern(identity.jobset_uid),
        phase=sys.intern((pod.get("status") or {}).get("phase") or ""),
        being_deleted="deletionTimestamp" in metadata,
        node=sys.intern(node) if node else None,
        placed_at=placed_at(pod),
        version=int(metadata.get("resourceVersion") or 0),
    )
