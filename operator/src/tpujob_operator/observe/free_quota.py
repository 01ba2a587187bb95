"""Counts the additional slices for which the queue of a job has quota, from its ClusterQueue, read at intervals.

Only the ClusterQueue's own quota in the flavors that Kueue assigned to the job counts, not what it could borrow from
its cohort. While other Workloads wait in the ClusterQueue, nothing counts as free: they would get it.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from tpujob_contract.quantity import quantity
from tpujob_operator.kube.client import CLUSTER_QUEUES, JOBSETS, Storage, first_served
from tpujob_operator.kube.requests import Object
from tpujob_operator.observe.free_slices import Need, need_of
from tpujob_operator.observe.missing_rights import IntervalCount
from tpujob_operator.observe.terminations import Key
from tpujob_operator.observe.workloads import workloads_of

type Share = tuple[str, str]
"""Names of a resource and of its flavor."""


class FreeQuotaReader(IntervalCount):
    """Counts free quota for jobs that run in a queue with fewer slices than they ask for."""

    def __init__(self, storage: Storage, *, enabled: bool) -> None:
        """`enabled`: whether ClusterQueues may be read; an operator for some namespaces has no right to."""
        consequence = "jobs with minSlices and a queue do not grow when quota is free"
        super().__init__("clusterqueues.kueue.x-k8s.io", consequence, enabled=enabled)
        self._storage = storage

    async def count(self, key: Key, jobset: str, jobset_uid: str, *, wanted: int) -> int:
        """The number of additional slices for which there is quota, at most `wanted`.

        Args:
            key: Of the job.
            jobset: Name of its JobSet, which is admitted.
            jobset_uid: Of the JobSet.
            wanted: Slices that are missing.

        Raises:
            ApiError: the API server did not answer.
        """
        return await self.read(key, lambda: self._look(key[0], jobset, jobset_uid, wanted))

    async def _look(self, namespace: str, jobset: str, jobset_uid: str, wanted: int) -> int:
        workloads = await workloads_of(self._storage, namespace, jobset_uid)
        admission = next((found for each in workloads or [] if (found := _admission(each))), None)
        manifest = await self._storage.get(JOBSETS, namespace, jobset)
        need = None if manifest is None else need_of(manifest)
        if admission is None or need is None:
            return 0
        name = admission["clusterQueue"]
        queue = await first_served(CLUSTER_QUEUES, lambda resource: self._storage.get(resource, None, name))
        return 0 if queue is None else min(wanted, slices_within_quota(queue, admission, need))


def slices_within_quota(cluster_queue: Object, admission: Object, need: Need) -> int:
    """The number of additional slices for which a ClusterQueue has quota.

    Args:
        cluster_queue: As the API server has it.
        admission: `status.admission` of the job's Workload, which has the flavor of each resource.
        need: The requirements of each slice. Resources without a quota in the queue are not limited by it.
    """
    if (cluster_queue.get("status") or {}).get("pendingWorkloads"):
        return 0
    free = _free(cluster_queue)
    flavors: dict[str, str] = {}
    for pods in admission.get("podSetAssignments") or []:
        flavors |= pods.get("flavors") or {}
    asked = {**need.amounts, "pods": Decimal(1)}
    rooms = [
        free[resource, flavors[resource]] // (amount * need.hosts)
        for resource, amount in asked.items()
        if amount > 0 and (resource, flavors.get(resource)) in free
    ]
    return max(0, int(min(rooms))) if rooms else 0


def _admission(workload: Object) -> Object | None:
    return (workload.get("status") or {}).get("admission")


def _free(cluster_queue: Object) -> Mapping[Share, Decimal]:
    """The unreserved part of each quota (kubernetes-sigs/kueue:apis/kueue/v1beta2/clusterqueue_types.go)."""
    groups = (cluster_queue.get("spec") or {}).get("resourceGroups") or []
    quotas = dict(_amounts((f for group in groups for f in group.get("flavors") or []), "nominalQuota"))
    reserved = dict(_amounts((cluster_queue.get("status") or {}).get("flavorsReservation") or [], "total"))
    return {share: amount - reserved.get(share, Decimal()) for share, amount in quotas.items()}


def _amounts(flavors: Any, field: str) -> Iterator[tuple[Share, Decimal]]:
    for flavor in flavors:
        for resource in flavor.get("resources") or []:
            amount = quantity(resource.get(field, "0"))
            if amount is not None:
                yield (resource["name"], flavor["name"]), amount
