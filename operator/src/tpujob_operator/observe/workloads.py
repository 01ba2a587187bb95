"""Why Kueue has not admitted a job: its Workload, read at intervals while the job waits.

The poll rate of all jobs together is limited: a queue may hold thousands. The watch reports the end of the wait, when
the JobSet is resumed.
"""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import WORKLOADS, Storage, first_served
from tpujob_operator.kube.requests import Object
from tpujob_operator.observe.missing_rights import MissingRights
from tpujob_operator.observe.queue_positions import QueuePositions
from tpujob_operator.observe.state import QueueState
from tpujob_operator.observe.terminations import Key
from tpujob_operator.observe.untrusted import clean_text
from tpujob_resource.models.times import parse_time

FIRST_SECONDS = 5.0
"""Between reads until Kueue has made a Workload, or has none to make."""
INTERVAL_SECONDS = 30.0
"""Between reads of one job's Workload."""
MOST_READS_PER_SECOND = 10.0
"""For all jobs that wait; with more than 300 of them the intervals grow in the namespaces with the most."""
MESSAGE_LENGTH = 600
INADMISSIBLE = frozenset({"Inadmissible", "Misconfigured", "Suspended"})
"""Reasons of QuotaReserved if a queue does not exist or admits nothing, the last two with Kueue's feature gate
UnadmittedWorkloadsObservability; all names here are from kubernetes-sigs/kueue:apis/kueue/v1beta2/workload_types.go."""
PODS_READY_TIMEOUT = "PodsReadyTimeout"
TOO_SHORT = "waitForPodsReady in Kueue's configuration is shorter than the pods needed to start"
PREEMPTED = "Preempted"
_PREEMPTOR = re.compile(r"JobUID: ([0-9a-f-]{36})")
"""In Evicted's message (kubernetes-sigs/kueue:pkg/scheduler/preemption/preemption.go)."""
_random = random.SystemRandom()


async def workloads_of(storage: Storage, namespace: str | None, uid: str) -> list[Object] | None:
    """Kueue's Workloads for the object of this uid; None: Kueue is not installed."""
    selector = f"{kubernetes_names.KUEUE_JOB_UID}={uid}"
    return await first_served(WORKLOADS, lambda resource: storage.list(resource, namespace, labels=selector))


def interval_seconds(namespace: str, jobs: Iterable[Key]) -> float:
    """The seconds between reads of the Workload of a job in this namespace, while those of all `jobs` are read."""
    counts, left = Counter(key[0] for key in jobs), MOST_READS_PER_SECOND
    for others, (name, count) in enumerate(reversed(counts.most_common())):
        rate = min(count / INTERVAL_SECONDS, left / (len(counts) - others))
        if name == namespace:
            return count / rate
        left -= rate  # what a namespace with few jobs does not need is left to the others
    return INTERVAL_SECONDS


class WorkloadReader:
    """Reads the Workload of jobs that wait in a queue."""

    def __init__(self, storage: Storage, *, clusterwide: bool) -> None:
        """Keeps the parts; `clusterwide`: whether Workloads of other namespaces may be read."""
        self._storage = storage
        self._clusterwide = clusterwide
        self._positions = QueuePositions(storage)
        self._rights = MissingRights(
            "workloads.kueue.x-k8s.io", "why a queue makes a job wait is not told", interval_seconds=300
        )
        self._read: dict[Key, tuple[str, float, QueueState | None]] = {}

    async def state(self, key: Key, jobset_uid: str) -> QueueState | None:
        """The state of a job in Kueue; None: it is not known.

        Raises:
            ApiError: the API server did not answer.
        """
        now = asyncio.get_running_loop().time()
        uid, due, state = self._read.get(key, ("", 0.0, None))
        if (uid == jobset_uid and now < due) or self._rights.is_missing(key[0]):
            return state
        try:
            state = await self._look(key[0], jobset_uid)
        except errors.Forbidden as error:
            self._rights.note(key[0], error)
            state = None
        interval = FIRST_SECONDS if state is None else interval_seconds(key[0], self._read)
        self._read[key] = (jobset_uid, now + interval * _random.uniform(0.9, 1.1), state)
        return state

    def forget(self, key: Key) -> None:
        """Drops the state of a job that does not wait any more."""
        self._read.pop(key, None)

    async def _look(self, namespace: str, jobset_uid: str) -> QueueState | None:
        found = await workloads_of(self._storage, namespace, jobset_uid)
        if found is None:
            return QueueState(is_installed=False)
        if not found:
            return None
        workload = max(found, key=lambda each: each["metadata"].get("creationTimestamp") or "")
        preemptor = preemptor_uid(workload)
        state = queue_state(workload, preempted_by=await self._owner(namespace, preemptor) if preemptor else None)
        queue = (workload.get("spec") or {}).get("queueName")
        if state.has_quota or state.cannot_be_admitted or not queue:
            return state
        return replace(state, position=await self._positions.of(namespace, queue, workload["metadata"]["name"]))

    async def _owner(self, namespace: str, job_uid: str) -> str | None:
        """Kind, namespace and name of the job with this uid, from its Workload; None: no Workload shows them."""
        found = await workloads_of(self._storage, None if self._clusterwide else namespace, job_uid)
        for workload in found or []:
            for owner in workload["metadata"].get("ownerReferences") or []:
                if owner.get("uid") == job_uid:
                    return f"{owner.get('kind')} {workload['metadata'].get('namespace')}/{owner.get('name')}"
        return None


def queue_state(workload: Object, *, preempted_by: str | None = None) -> QueueState:
    """The state of a job in Kueue, from its Workload.

    Args:
        workload: As the API server has it.
        preempted_by: The job for which it was preempted.
    """
    status, spec = workload.get("status") or {}, workload.get("spec") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    quota, evicted = conditions.get("QuotaReserved") or {}, _true(conditions, "Evicted")
    has_quota = quota.get("status") == "True"
    since = evicted.get("lastTransitionTime") or workload["metadata"].get("creationTimestamp")
    return QueueState(
        since=parse_time(since),
        message=_checks(status) if has_quota else clean_text(quota.get("message"), limit=MESSAGE_LENGTH),
        has_quota=has_quota,
        cannot_be_admitted=spec.get("active") is False or (not has_quota and quota.get("reason") in INADMISSIBLE),
        is_deactivated=spec.get("active") is False,
        eviction=_eviction(evicted),
        is_preempted=evicted.get("reason") == PREEMPTED,
        preempted_by=preempted_by,
    )


def _eviction(evicted: Mapping[str, Any]) -> str:
    message = clean_text(evicted.get("message"), limit=MESSAGE_LENGTH)
    return f"{message}: {TOO_SHORT}" if evicted.get("reason") == PODS_READY_TIMEOUT else message


def preemptor_uid(workload: Object) -> str | None:
    """The uid of the job for which this Workload was preempted; None: it was not, or the uid is unknown."""
    conditions = {c.get("type"): c for c in (workload.get("status") or {}).get("conditions") or []}
    evicted = _true(conditions, "Evicted")
    found = _PREEMPTOR.search(clean_text(evicted.get("message"), limit=MESSAGE_LENGTH))
    return found[1] if found is not None and evicted.get("reason") == PREEMPTED else None


def _true(conditions: Mapping[str | None, Any], kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = conditions.get(kind) or {}
    return found if found.get("status") == "True" else {}


def _checks(status: Mapping[str, Any]) -> str:
    """Names and messages of the admission checks that have not passed, such as a ProvisioningRequest."""
    waiting = [check for check in status.get("admissionChecks") or [] if check.get("state") != "Ready"]
    words = [": ".join(part for part in (check.get("name"), check.get("message")) if part) for check in waiting]
    return clean_text("; ".join(words), limit=MESSAGE_LENGTH)
