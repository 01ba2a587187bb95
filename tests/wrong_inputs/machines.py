# ruff: noqa: E501 - a table
"""Wrong jobs: the machines that they take."""

from typing import Any

from tests.operator.manifests import manifest
from tests.wrong_inputs.row import ARITHMETIC, Job, Wrong

SMALL: dict[str, Any] = {"model": {"preset": "tiny"}, "data": {"path": "data/*.parquet"}, "steps": 10}


def _spec(**fields: Any) -> Job:
    return manifest("job", **{"accelerator": "cpu:2x1", "trainer": SMALL, **fields})


ROWS: dict[str, Wrong] = {
    "capacities": Wrong(
        manifest(capacity={"spot": True, "flexStart": True}),
        "spec.capacity: spot, computeClass, reservation, flexStart and queuedProvisioning exclude each other; keep one",
    ),
    "a sub-block of no block": Wrong(
        manifest(capacity={"reservation": {"name": "r", "subBlock": "s"}}),
        "spec.capacity.reservation.subBlock: is a part of a block; give block, too",
    ),
    "a class and spot": Wrong(
        manifest(capacity={"computeClass": "c", "spot": True}),
        "spec.capacity: spot, computeClass, reservation, flexStart and queuedProvisioning exclude each other; keep one",
    ),
    "queued provisioning and spot": Wrong(
        manifest(queue="q", capacity={"queuedProvisioning": {}, "spot": True}),
        "spec.capacity: spot, computeClass, reservation, flexStart and queuedProvisioning exclude each other; keep one",
    ),
    "a controller without a domain": Wrong(
        manifest(managedBy="multikueue"),
        'spec.managedBy: "multikueue" is not the name of a controller; write DOMAIN/PATH, such as kueue.x-k8s.io/multikueue, DOMAIN in lower case',
        api="spec.managedBy",
    ),
    "a controller with too long a name": Wrong(
        manifest(managedBy="example.com/" + 52 * "a"),
        f'spec.managedBy: "example.com/{46 * "a"}… is too long; at most 63 characters',
        api="spec.managedBy",
    ),
    "MultiKueue without a queue": Wrong(
        manifest(managedBy="kueue.x-k8s.io/multikueue"),
        "spec.managedBy: chooses a cluster for jobs of a queue, and the job has none; set queue",
    ),
    "MultiKueue with fewer slices": Wrong(
        manifest(
            queue="q", managedBy="kueue.x-k8s.io/multikueue", slices=2, minSlices=1, checkpointDir="gs://bucket/run"
        ),
        "spec.minSlices: does not go with MultiKueue, for which a job has the same number of pods all the time; leave it out",
    ),
    "queued provisioning without a queue": Wrong(
        manifest(capacity={"queuedProvisioning": {"maxRunSeconds": 3600}}),
        "spec.capacity.queuedProvisioning: Kueue asks for the machines, and the job has no queue; set queue",
    ),
    "queued provisioning for 8 days": Wrong(
        manifest(queue="q", capacity={"queuedProvisioning": {"maxRunSeconds": 691200}}),
        "spec.capacity.queuedProvisioning.maxRunSeconds: 691200 is too large; at most 604800",
        api="spec.capacity.queuedProvisioning.maxRunSeconds",
    ),
    "a part of a pool without a queue": Wrong(
        manifest(accelerator="v6e-16", placement={"poolTopology": "16x16"}),
        "spec.placement.poolTopology: is for Kueue, and the job has no queue; set queue, or leave it out",
    ),
    "two ways of placing": Wrong(
        manifest(queue="q", placement={"superSlice": True, "requiredTopology": "cloud.google.com/gke-nodepool"}),
        "spec.placement: requiredTopology, poolTopology and superSlice exclude each other; keep one",
        "spec.placement.superSlice: is for tpu7x, and this is another generation; leave it out",
    ),
    "owned selector": Wrong(
        manifest(nodeSelector={"cloud.google.com/gke-tpu-topology": "2x2"}),
        'spec.nodeSelector["cloud.google.com/gke-tpu-topology"]: is set by spec.accelerator; leave it out',
    ),
    "tolerating the end": Wrong(
        manifest(tolerations=[{"key": "cloud.google.com/impending-node-termination", "operator": "Exists"}]),
        'spec.tolerations[0].key: "cloud.google.com/impending-node-termination" announces the end of a machine; never tolerate it',
    ),
    "seconds of a taint that evicts nobody": Wrong(
        manifest(tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}]),
        "spec.tolerations[0].tolerationSeconds: goes with effect NoExecute alone; leave it out",
    ),
    "seconds without an effect": Wrong(
        manifest(tolerations=[{"key": "a", "tolerationSeconds": 5}]),
        "spec.tolerations[0].tolerationSeconds: goes with effect NoExecute alone; leave it out",
    ),
    "tolerating everything": Wrong(
        manifest(tolerations=[{"operator": "Exists"}]),
        "spec.tolerations[0].key: is missing",
        api="spec.tolerations[0].key: Required value",
    ),
    "a strange operator": Wrong(
        manifest(tolerations=[{"key": "a", "operator": "In"}]),
        "spec.tolerations[0].operator: \"In\" is not allowed; one of 'Equal' or 'Exists'",
        api='spec.tolerations[0].operator: Unsupported value: "In": supported values: "Equal", "Exists"',
    ),
    "a strange queue": Wrong(
        manifest(queue="a/b"),
        'spec.queue: "a/b" is not a name in Kubernetes; allowed: lower-case letters, digits and -, beginning and ending with a letter or digit, and dots within',
        api="spec.queue: Invalid value: \"a/b\": spec.queue in body should match '^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'",
    ),
    "Kueue's topology without a queue": Wrong(
        manifest(placement={"requiredTopology": "cloud.google.com/gke-nodepool"}),
        "spec.placement.requiredTopology: is for Kueue, and the job has no queue; set queue, or leave it out",
    ),
    "a class of the system's": Wrong(
        manifest(priorityClassName="system-node-critical"),
        "spec.priorityClassName: \"system-node-critical\" is for Kubernetes' own pods; use a class of your cluster's jobs",
    ),
    "a part of a pool of another generation": Wrong(
        manifest(accelerator="v5e-16", queue="q", placement={"poolTopology": "16x16"}),
        "spec.placement.poolTopology: is for v6e, and this is another generation; leave it out",
    ),
    "a part of a pool that is no part": Wrong(
        manifest(accelerator="v6e:4x8", queue="q", placement={"poolTopology": "4x4"}),
        'spec.placement.poolTopology: "4x4" cannot be divided into several slices of 4x8; give the pool\'s topology',
        later=ARITHMETIC,
    ),
    "a super-slice of another generation": Wrong(
        manifest(accelerator="v5p-128", queue="q", placement={"superSlice": True}),
        "spec.placement.superSlice: is for tpu7x, and this is another generation; leave it out",
    ),
    "a super-slice of half a cube": Wrong(
        manifest(accelerator="tpu7x:2x4x4", queue="q", placement={"superSlice": True}),
        "spec.placement.superSlice: is for slices made of cubes of 4x4x4 chips, and this one is smaller; leave it out",
    ),
    "flex-start on v4": Wrong(
        manifest(accelerator="v4-16", capacity={"flexStart": True}),
        "spec.capacity.flexStart: v4 is not offered with flex-start; leave it out",
    ),
    "a selector that another field owns": Wrong(
        manifest(nodeSelector={"cloud.google.com/gke-spot": "true"}),
        'spec.nodeSelector["cloud.google.com/gke-spot"]: is set by spec.capacity.spot; leave it out',
    ),
    "a count that no machine has": Wrong(
        manifest(accelerator="v6e-8", nodeSelector={"cloud.google.com/gke-accelerator-count": "two"}),
        'spec.nodeSelector["cloud.google.com/gke-accelerator-count"]: "two" is not a number of chips that a machine has: 1, 4 or 8',
    ),
    "flex-start of v3": Wrong(
        manifest(accelerator="v3-32", capacity={"flexStart": True}),
        "spec.capacity.flexStart: v3 is not offered with flex-start; leave it out",
    ),
    "a super-slice without a queue": Wrong(
        manifest(accelerator="tpu7x:4x4x8", placement={"superSlice": True}),
        "spec.placement.superSlice: is for Kueue, and the job has no queue; set queue, or leave it out",
    ),
    "a topology of workers": Wrong(
        manifest(
            accelerator="v6e-8", workers=2, queue="q", placement={"requiredTopology": "cloud.google.com/gke-nodepool"}
        ),
        "spec.placement.requiredTopology: is for hosts that talk to each other, and workers do not; leave it out",
    ),
    "a part of a pool for workers": Wrong(
        manifest(accelerator="v6e-4", workers=2, queue="q", placement={"poolTopology": "16x16"}),
        "spec.placement.poolTopology: is for hosts that talk to each other, and workers do not; leave it out",
    ),
    "a super-slice of workers": Wrong(
        manifest(accelerator="tpu7x:2x2x1", workers=2, queue="q", placement={"superSlice": True}),
        "spec.placement.superSlice: is for hosts that talk to each other, and workers do not; leave it out",
        "spec.placement.superSlice: is for slices made of cubes of 4x4x4 chips, and this one is smaller; leave it out",
    ),
    "selector gke-tpu-accelerator": Wrong(
        manifest(nodeSelector={"cloud.google.com/gke-tpu-accelerator": "a"}),
        'spec.nodeSelector["cloud.google.com/gke-tpu-accelerator"]: is set by spec.accelerator; leave it out',
    ),
    "selector gke-tpu-topology": Wrong(
        manifest(nodeSelector={"cloud.google.com/gke-tpu-topology": "a"}),
        'spec.nodeSelector["cloud.google.com/gke-tpu-topology"]: is set by spec.accelerator; leave it out',
    ),
    "selector gke-spot": Wrong(
        manifest(nodeSelector={"cloud.google.com/gke-spot": "a"}),
        'spec.nodeSelector["cloud.google.com/gke-spot"]: is set by spec.capacity.spot; leave it out',
    ),
    "selector gke-flex-start": Wrong(
        manifest(nodeSelector={"cloud.google.com/gke-flex-start": "a"}),
        'spec.nodeSelector["cloud.google.com/gke-flex-start"]: is set by spec.capacity.flexStart; leave it out',
    ),
    "selector gke-provisioning": Wrong(
        manifest(nodeSelector={"cloud.google.com/gke-provisioning": "a"}),
        'spec.nodeSelector["cloud.google.com/gke-provisioning"]: is set by spec.capacity; leave it out',
    ),
    "selector gke-queued": Wrong(
        manifest(nodeSelector={"cloud.google.com/gke-queued": "a"}),
        'spec.nodeSelector["cloud.google.com/gke-queued"]: is set by spec.capacity.queuedProvisioning; leave it out',
    ),
    "selector reservation-name": Wrong(
        manifest(nodeSelector={"cloud.google.com/reservation-name": "a"}),
        'spec.nodeSelector["cloud.google.com/reservation-name"]: is set by spec.capacity.reservation.name; leave it out',
    ),
    "selector reservation-project": Wrong(
        manifest(nodeSelector={"cloud.google.com/reservation-project": "a"}),
        'spec.nodeSelector["cloud.google.com/reservation-project"]: is set by spec.capacity.reservation.project; leave it out',
    ),
    "selector reservation-affinity": Wrong(
        manifest(nodeSelector={"cloud.google.com/reservation-affinity": "a"}),
        'spec.nodeSelector["cloud.google.com/reservation-affinity"]: is set by spec.capacity.reservation; leave it out',
    ),
    "selector reservation-blocks": Wrong(
        manifest(nodeSelector={"cloud.google.com/reservation-blocks": "a"}),
        'spec.nodeSelector["cloud.google.com/reservation-blocks"]: is set by spec.capacity.reservation.block; leave it out',
    ),
    "selector reservation-subblocks": Wrong(
        manifest(nodeSelector={"cloud.google.com/reservation-subblocks": "a"}),
        'spec.nodeSelector["cloud.google.com/reservation-subblocks"]: is set by spec.capacity.reservation.subBlock; leave it out',
    ),
    "selector compute-class": Wrong(
        manifest(nodeSelector={"cloud.google.com/compute-class": "a"}),
        'spec.nodeSelector["cloud.google.com/compute-class"]: is set by spec.capacity.computeClass; leave it out',
    ),
    "selector placement-policy-name": Wrong(
        manifest(nodeSelector={"cloud.google.com/placement-policy-name": "a"}),
        'spec.nodeSelector["cloud.google.com/placement-policy-name"]: is set by spec.placement.policyName; leave it out',
    ),
    "a queue of a namespace": Wrong(
        _spec(queue="team/queue"),
        'spec.queue: "team/queue" is not a name in Kubernetes; allowed: lower-case letters, digits and -, beginning and ending with a letter or digit, and dots within',
        api="spec.queue: Invalid value: \"team/queue\": spec.queue in body should match '^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'",
    ),
    "a strange taint": Wrong(
        _spec(tolerations=[{"key": "a b", "operator": "Exists"}]),
        'spec.tolerations[0].key: "a b" is not a label\'s key; write [PREFIX/]NAME, NAME of letters, digits, -, _ and ., such as example.com/pool',
        api="spec.tolerations[0].key",
    ),
    "a reservation without a name": Wrong(
        _spec(capacity={"reservation": {}}),
        "spec.capacity.reservation.name: is missing",
        api="spec.capacity.reservation.name: Required value",
    ),
    "an unknown way to pay": Wrong(
        _spec(capacity={"preemptible": True}),
        "spec.capacity.preemptible: there is no such field",
        api='unknown field "spec.capacity.preemptible"',
    ),
    "a taint with a value too many": Wrong(
        _spec(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        "spec.tolerations[0].value: goes with operator Equal; with Exists leave it out",
    ),
    "a queue with a space": Wrong(
        _spec(queue="Team A"),
        'spec.queue: "Team A" is not a name in Kubernetes; allowed: lower-case letters, digits and -, beginning and ending with a letter or digit, and dots within',
        api="spec.queue: Invalid value: \"Team A\": spec.queue in body should match '^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$'",
    ),
}
