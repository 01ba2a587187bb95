"""The nodes on which a job's pods may run: labels and taints, and a node pool for each slice or a request to Kueue.

Sub-slices and dynamic slices as in AI-Hypercomputer/xpk:src/xpk/core/scheduling.py and src/xpk/commands/workload.py;
queued provisioning as in GoogleCloudPlatform/cluster-toolkit:examples/gke-consumption-options.
"""

from collections.abc import Sequence
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.topology.parse import TOPOLOGY_LABEL

type Object = dict[str, Any]
type Avoided = tuple[str, str]
"""A node label, and a value that the label of a machine must not have."""

TPU_TAINT = "google.com/tpu"
NODE_POOL_LABEL = "cloud.google.com/gke-nodepool"
"""One node pool is one slice: ICI connects the machines of a pool."""
HOSTNAME_LABEL = "kubernetes.io/hostname"
MAX_RUN_ANNOTATION = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"
SLICE_TOPOLOGY_ANNOTATION = "cloud.google.com/gke-tpu-slice-topology"
SUB_SLICE_LABEL = "cloud.google.com/gke-tpu-slice-{topology}-id"
"""Node label that identifies the part of a pool, of this topology, that a machine belongs to."""
_SPOT = "cloud.google.com/gke-spot"
_COMPUTE_CLASS = "cloud.google.com/compute-class"
_FLEX_START = "cloud.google.com/gke-flex-start"
_QUEUED = "cloud.google.com/gke-queued"


def jobset_annotations(job: TpuTrainingJob) -> dict[str, str]:
    """Annotations of the JobSet: exclusive node pools for slices, and for how long Kueue requests machines."""
    annotations: dict[str, str] = {}
    capacity = job.spec.capacity
    if job.accelerator.is_tpu and job.accelerator.is_multi_host and not _is_placed_by_kueue(job):
        annotations[kubernetes_names.EXCLUSIVE_TOPOLOGY] = NODE_POOL_LABEL
    queued = capacity.queued_provisioning if capacity is not None else None
    if queued is not None and queued.max_run_seconds is not None:
        annotations[MAX_RUN_ANNOTATION] = str(queued.max_run_seconds)
    return annotations


def pod_annotations(job: TpuTrainingJob) -> dict[str, str]:
    """Kueue's request for topology-aware scheduling; all slices of a job are one pod set."""
    level, annotations = required_topology(job), {}
    placement = job.spec.placement
    if placement is not None and (placement.dynamic_slice or placement.pool_topology is not None):
        annotations[SLICE_TOPOLOGY_ANNOTATION] = job.accelerator.topology
    if level is None:
        return annotations
    if job.slices == 1:
        return annotations | {kubernetes_names.KUEUE_REQUIRED_TOPOLOGY: level}
    return annotations | {
        kubernetes_names.KUEUE_SLICE_REQUIRED_TOPOLOGY: level,
        kubernetes_names.KUEUE_SLICE_SIZE: str(job.accelerator.hosts_per_slice),
    }


def required_topology(job: TpuTrainingJob) -> str | None:
    """The topology level by which Kueue places each slice; None: the job sets none."""
    placement = job.spec.placement
    if placement is None:
        return None
    if placement.pool_topology is not None:
        return SUB_SLICE_LABEL.format(topology=job.accelerator.topology)
    return placement.required_topology


def _is_placed_by_kueue(job: TpuTrainingJob) -> bool:
    """Whether Kueue, or its slice controller, chooses the machines of each slice.

    A queue alone does not place pods: with two free pools of one shape, plain Kueue mixes a slice's hosts. Kueue and
    exclusive topology cannot be combined: JobSet pins the followers of a Job to a pool that Kueue may not have chosen.
    """
    placement = job.spec.placement
    return placement is not None and (bool(placement.dynamic_slice) or required_topology(job) is not None)


def node_selector(job: TpuTrainingJob) -> dict[str, str]:
    """The node selector of every pod."""
    capacity = job.spec.capacity
    chosen: dict[str, str] = {}
    if capacity is not None and capacity.spot:
        chosen[_SPOT] = "true"
    if capacity is not None and capacity.flex_start:
        chosen[_FLEX_START] = "true"
    if capacity is not None and capacity.queued_provisioning is not None:
        chosen[_QUEUED] = "true"
    if capacity is not None and capacity.reservation is not None:
        chosen["cloud.google.com/reservation-name"] = capacity.reservation.name
        chosen["cloud.google.com/reservation-affinity"] = "specific"
        if capacity.reservation.project is not None:
            chosen["cloud.google.com/reservation-project"] = capacity.reservation.project
        if capacity.reservation.block is not None:
            chosen["cloud.google.com/reservation-blocks"] = capacity.reservation.block
        if capacity.reservation.sub_block is not None:
            chosen["cloud.google.com/reservation-subblocks"] = capacity.reservation.sub_block
    if capacity is not None and capacity.compute_class is not None:
        chosen[_COMPUTE_CLASS] = capacity.compute_class
    placement = job.spec.placement
    if placement is not None and placement.policy_name is not None:
        chosen["cloud.google.com/placement-policy-name"] = placement.policy_name
    return {**(job.spec.node_selector or {}), **_shape_labels(job), **chosen}


def _shape_labels(job: TpuTrainingJob) -> dict[str, str]:
    """The node labels of the accelerator, with the topology of its node pools, which may differ from the slice's."""
    labels, placement = dict(job.accelerator.node_selector), job.spec.placement
    if placement is not None and placement.pool_topology is not None:
        labels[TOPOLOGY_LABEL] = placement.pool_topology
    if placement is not None and placement.dynamic_slice:
        # Its machines have the topology label of the pools that it consists of.
        del labels[TOPOLOGY_LABEL]
    return labels


def avoidance_label(job: TpuTrainingJob) -> str | None:
    """The node label by which bad machines are avoided; None: the job has a queue or independent workers.

    A slice that takes a whole node pool needs all hosts of its pool: without one of them it would wait in that pool
    forever, so the pool is avoided.
    """
    if job.spec.queue is not None or job.spec.workers is not None:
        return None
    return NODE_POOL_LABEL if kubernetes_names.EXCLUSIVE_TOPOLOGY in jobset_annotations(job) else HOSTNAME_LABEL


def node_affinity(avoided: Sequence[Avoided]) -> Object:
    """The node affinity with which pods avoid these machines; empty if there are none."""
    labels = sorted({label for label, _ in avoided})
    expressions = [
        {"key": key, "operator": "NotIn", "values": sorted({value for label, value in avoided if label == key})}
        for key in labels
    ]
    if not expressions:
        return {}
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def tolerations(job: TpuTrainingJob) -> list[Object]:
    """The tolerations of every pod."""
    spec = job.spec
    made: list[Object] = []
    if job.accelerator.is_tpu:
        # GKE's admission controller adds it as well; other clusters do not.
        made.append({"key": TPU_TAINT, "operator": "Exists", "effect": "NoSchedule"})
    for key, is_chosen in (
        (_SPOT, spec.capacity is not None and spec.capacity.spot),
        (_FLEX_START, spec.capacity is not None and spec.capacity.flex_start),
        (_QUEUED, spec.capacity is not None and spec.capacity.queued_provisioning is not None),
    ):
        if is_chosen:
            made.append({"key": key, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    if spec.capacity is not None and spec.capacity.compute_class is not None:
        value = spec.capacity.compute_class
        made.append({"key": _COMPUTE_CLASS, "operator": "Equal", "value": value, "effect": "NoSchedule"})
    made += [t.model_dump(by_alias=True, exclude_none=True) for t in spec.tolerations or ()]
    return made
