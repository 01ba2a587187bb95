"""Counts the additional slices for which a JobSet has free machines: nodes that its pods fit on, read at intervals.

Counted as kube-scheduler would place them, by the criteria that these pods use: node selector, affinity, taints, and
free resources. Machines that an autoscaler could add do not count, and other pending pods are ignored.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_contract.quantity import quantity
from tpujob_operator.kube.client import JOBSETS, NODES, PODS, Storage
from tpujob_operator.kube.requests import Object
from tpujob_operator.observe.from_objects import hosts_job
from tpujob_operator.observe.missing_rights import IntervalCount
from tpujob_operator.observe.nodes import node_trouble
from tpujob_operator.observe.terminations import Key

type Amounts = Mapping[str, Decimal]


@dataclass(frozen=True, kw_only=True)
class Need:
    """The requirements of a JobSet's slice on its machines."""

    hosts: int
    pod: Mapping[str, Any]
    """The `spec` of each pod."""
    domain: str | None
    """Node label: a slice takes all machines with the same value of it; None: machines are shared."""

    @property
    def selector(self) -> str:
        """The node selector as a label selector for queries."""
        return ",".join(f"{key}={value}" for key, value in sorted((self.pod.get("nodeSelector") or {}).items()))

    @property
    def amounts(self) -> Amounts:
        """The resource requests of each pod."""
        return pod_amounts(self.pod)


class FreeSliceReader(IntervalCount):
    """Counts free machines for jobs that run with fewer slices than they ask for."""

    def __init__(self, storage: Storage, *, enabled: bool) -> None:
        """`enabled`: whether nodes may be read; an operator for some namespaces has no right to."""
        super().__init__("nodes", "jobs with minSlices do not grow when machines are free", enabled=enabled)
        self._storage = storage

    async def count(self, key: Key, jobset: str, *, wanted: int) -> int:
        """The number of additional slices for which there are machines, at most `wanted`.

        Args:
            key: Of the job.
            jobset: Name of its JobSet.
            wanted: Slices that are missing.

        Raises:
            ApiError: the API server did not answer.
        """
        return await self.read(key, lambda: self._look(key[0], jobset, wanted))

    async def _look(self, namespace: str, jobset: str, wanted: int) -> int:
        manifest = await self._storage.get(JOBSETS, namespace, jobset)
        need = None if manifest is None else need_of(manifest)
        if need is None:
            return 0
        nodes = [node for node in await self._storage.list(NODES, None, labels=need.selector) if may_run(node, need)]
        if need.domain is None:
            return min(wanted, await self._room(nodes, need, enough=wanted * need.hosts) // need.hosts)
        found = 0
        for domain in domains(nodes, need.domain):
            if found < wanted and len(domain) >= need.hosts:
                found += await self._room(domain, need, enough=need.hosts, is_whole=True) >= need.hosts
        return found

    async def _room(self, nodes: Iterable[Object], need: Need, *, enough: int, is_whole: bool = False) -> int:
        """The number of pods that fit on these nodes, counted up to `enough`; `is_whole`: 0 if a node is full."""
        total = 0
        for node in nodes:
            selector = f"spec.nodeName={node['metadata']['name']},status.phase!=Failed,status.phase!=Succeeded"
            pods = await self._storage.list(PODS, None, fields=selector)
            room = pods_that_fit(node, pods, need)
            if is_whole and not room:
                return 0
            total += room
            if total >= enough and not is_whole:
                break
        return total


def need_of(jobset: Object) -> Need | None:
    """The requirements of each slice of a JobSet; None: it has no hosts of ours."""
    _, job = hosts_job(jobset)
    pod, hosts = (job.get("template") or {}).get("spec"), job.get("parallelism")
    if not pod or not hosts:
        return None
    annotations = jobset["metadata"].get("annotations") or {}
    return Need(
        hosts=hosts,
        pod=pod,
        domain=annotations.get(kubernetes_names.EXCLUSIVE_TOPOLOGY),
    )


def may_run(node: Object, need: Need) -> bool:
    """Whether pods may be scheduled on a node, regardless of its free resources."""
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    if spec.get("unschedulable") or node_trouble(node) is not None:
        return False
    if any(labels.get(key) != value for key, value in (need.pod.get("nodeSelector") or {}).items()):
        return False
    tolerations = need.pod.get("tolerations") or []
    repelling = [taint for taint in spec.get("taints") or [] if taint.get("effect") != "PreferNoSchedule"]
    is_tolerated = all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in repelling)
    return is_tolerated and not _is_avoided(labels, need.pod)


def domains(nodes: Iterable[Object], label: str) -> list[list[Object]]:
    """The nodes grouped by their value of a label, sorted by it; nodes without the label are left out."""
    by_value: dict[str, list[Object]] = defaultdict(list)
    for node in nodes:
        value = (node["metadata"].get("labels") or {}).get(label)
        if value is not None:
            by_value[value].append(node)
    return [by_value[value] for value in sorted(by_value)]


def pods_that_fit(node: Object, pods: Iterable[Object], need: Need) -> int:
    """The number of additional pods that fit on a node.

    Args:
        node: One on which they may run.
        pods: Those that run there.
        need: The requirements of the new ones.
    """
    allocatable = _amounts((node.get("status") or {}).get("allocatable") or {})
    used: dict[str, Decimal] = defaultdict(Decimal)
    for pod in pods:
        for name, amount in {**pod_amounts(pod.get("spec") or {}), "pods": Decimal(1)}.items():
            used[name] += amount
    asked = {**need.amounts, "pods": Decimal(1)}
    rooms = [(allocatable.get(name, Decimal()) - used[name]) // amount for name, amount in asked.items() if amount > 0]
    return max(0, int(min(rooms)))


def pod_amounts(pod: Mapping[str, Any]) -> dict[str, Decimal]:
    """The total resource requests of a pod, as kube-scheduler counts them (kubernetes.io, "Sidecar Containers").

    Containers and sidecars (init containers with `restartPolicy: Always`) run together; the other init containers run
    one by one, each together with the sidecars that were started before it.
    """
    total: dict[str, Decimal] = defaultdict(Decimal)
    sidecars: dict[str, Decimal] = defaultdict(Decimal)
    most: dict[str, Decimal] = defaultdict(Decimal)
    for container in pod.get("containers") or []:
        for name, amount in _requests(container).items():
            total[name] += amount
    for container in pod.get("initContainers") or []:
        is_sidecar = container.get("restartPolicy") == "Always"
        for name, amount in _requests(container).items():
            most[name] = max(most[name], sidecars[name] + amount)
            if is_sidecar:
                sidecars[name] += amount
                total[name] += amount
    return {name: max(total[name], most[name]) for name in {**total, **most}}


def _requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    # Kubernetes uses the limit as the request if none is given.
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(given: Mapping[str, Any]) -> dict[str, Decimal]:
    read = {name: quantity(value) for name, value in given.items()}
    return {name: amount for name, amount in read.items() if amount is not None}


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether a toleration matches a taint (kubernetes.io, "Taints and Tolerations")."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return bool(toleration.get("key") == taint["key"] and (toleration.get("value") or "") == (taint.get("value") or ""))


def _is_avoided(labels: Mapping[str, str], pod: Mapping[str, Any]) -> bool:
    """Whether the pod's required affinity excludes a node; our pods only use NotIn."""
    required = ((pod.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    return any(
        labels.get(expression["key"]) in expression["values"]
        for term in required.get("nodeSelectorTerms") or []
        for expression in term.get("matchExpressions") or []
        if expression.get("operator") == "NotIn"
    )
