"""The nodes of failed attempts: a lost host shows up first as crashes elsewhere, and later as an unhealthy node.

A cordon alone is no evidence (a job that crashes on a cordoned node crashes by itself); pods that a drain evicts are
marked by Kubernetes.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tpujob_operator.kube.client import NODES, Storage
from tpujob_operator.observe.pod_state import PodState
from tpujob_operator.observe.state import Ended, LostNode
from tpujob_operator.observe.terminations import Key
from tpujob_resource.models.times import parse_time

INTERVAL_SECONDS = 5.0
"""Between two reads of the nodes of one job."""
TAINTS = {
    "cloud.google.com/impending-node-termination": "is being taken away",
    "cloud.google.com/maintenance-window-started": "is under maintenance",
    "ToBeDeletedByClusterAutoscaler": "is being removed by the autoscaler",
    "node.kubernetes.io/out-of-service": "is out of service",
    "node.kubernetes.io/unreachable": "cannot be reached",
    "node.kubernetes.io/not-ready": "is not ready",
}
"""Meaning of each taint (GKE's pages on disruption of TPU nodes; kubernetes/api:core/v1/well_known_taints.go)."""
MAINTENANCE_LABEL = "cloud.google.com/active-node-maintenance"


class NodeWatch:
    """Reads the nodes of failed attempts, and keeps the unhealthy ones."""

    def __init__(self, storage: Storage, *, enabled: bool) -> None:
        """`enabled`: whether nodes may be read; an operator for some namespaces has no right to."""
        self._storage = storage
        self._enabled = enabled
        self._looked_at: dict[Key, float] = {}
        self._lost: dict[Key, dict[tuple[int, str], LostNode]] = {}
        self._labels_read: dict[Key, float] = {}
        self._labels: dict[Key, dict[str, Mapping[str, str]]] = {}

    async def lost(
        self, key: Key, ended: Iterable[Ended], pods: Iterable[PodState], *, judged: int
    ) -> tuple[LostNode, ...]:
        """The nodes of failed attempts that are, or were, unhealthy.

        Args:
            key: Of the job.
            ended: The observed failures.
            pods: The existing pods.
            judged: How many attempts have been judged; their nodes do not matter any more.
        """
        if not self._enabled:
            return ()
        found = self._lost.setdefault(key, {})
        failed = {end.attempt for end in ended if end.attempt >= judged}
        wanted = [_Place(end.attempt, end.node, end.placed_at) for end in ended if end.attempt in failed and end.node]
        wanted += [
            _Place(pod.host.attempt, pod.node, pod.placed_at) for pod in pods if pod.node and pod.host.attempt in failed
        ]
        now = asyncio.get_running_loop().time()
        if wanted and now - self._looked_at.get(key, float("-inf")) >= INTERVAL_SECONDS:
            self._looked_at[key] = now
            for name in sorted({place.node for place in wanted}):
                node = await self._storage.get(NODES, None, name)
                for place in (place for place in wanted if place.node == name):
                    trouble = node_trouble(node, placed_at=place.placed_at)
                    if trouble is not None:
                        found[place.attempt, name] = LostNode(attempt=place.attempt, name=name, trouble=trouble)
        return tuple(found.values())

    async def labels(self, key: Key, names: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """The labels of nodes by their names, without nodes that are gone."""
        wanted = sorted(names) if self._enabled else []
        now = asyncio.get_running_loop().time()
        if wanted and now - self._labels_read.get(key, float("-inf")) >= INTERVAL_SECONDS:
            self._labels_read[key] = now
            found = {name: await self._storage.get(NODES, None, name) for name in wanted}
            self._labels[key] = {
                name: node["metadata"].get("labels") or {} for name, node in found.items() if node is not None
            }
        return self._labels.get(key, {}) if wanted else {}

    def forget_stopped(self, key: Key, first_attempt: int) -> None:
        """Drops the nodes of an attempt that was suspended and continues."""
        found = self._lost.get(key, {})
        self._lost[key] = {place: node for place, node in found.items() if node.attempt < first_attempt}

    def forget(self, key: Key) -> None:
        """Drops a job that is gone, over or suspended."""
        self._labels.pop(key, None)
        self._labels_read.pop(key, None)
        self._lost.pop(key, None)
        self._looked_at.pop(key, None)


@dataclass(frozen=True)
class _Place:
    """Where and when a pod of an attempt was scheduled."""

    attempt: int
    node: str
    placed_at: datetime | None


def node_trouble(node: Mapping[str, Any] | None, *, placed_at: datetime | None = None) -> str | None:
    """What is wrong with a node, as a phrase after its name; None: it is healthy.

    Args:
        node: As read; None: there is none of that name.
        placed_at: When the pod was scheduled there. A repaired node has its old name and is younger than that; one that
            an autoscaler adds for a pod is only younger than the pod.
    """
    if node is None:
        return "is gone"
    created_at = parse_time(node["metadata"].get("creationTimestamp"))
    if placed_at is not None and created_at is not None and created_at > placed_at:
        return "was replaced by another machine of its name"
    if "deletionTimestamp" in node["metadata"]:
        return "is being removed"
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint["key"] in TAINTS:
            return TAINTS[taint["key"]]
    if (node["metadata"].get("labels") or {}).get(MAINTENANCE_LABEL) == "ONGOING":
        return "is under maintenance"
    conditions = (node.get("status") or {}).get("conditions") or []
    ready = next((c for c in conditions if c["type"] == "Ready"), None)
    if ready is not None and ready["status"] != "True":
        return f"is not ready ({ready.get('reason') or 'no reason given'})"
    return None
