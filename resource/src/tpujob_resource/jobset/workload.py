"""The Kueue Workload of a job that MultiKueue runs: the same that Kueue would create for the job's JobSet.

For kinds that Kueue does not know, the kind's controller creates the Workload
(kubernetes-sigs/kueue:keps/2349-multikueue-external-custom-job-support). On the worker cluster Kueue compares its
containers with those of the JobSet that is created there, and refuses different ones as out of sync
(pkg/util/equality/podset.go): the operators of both clusters need the same images and settings.
"""

import hashlib
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_resource.jobset.build import build_jobset, owner_references
from tpujob_resource.models.job import TpuTrainingJob, queue_priority_class
from tpujob_resource.models.settings import JobSettings

type Object = dict[str, Any]

API_VERSION = kubernetes_names.KUEUE_GROUP + "/v1beta2"
LONGEST_PREFIX = 54
"""Most characters of a Workload's name before its hash of 9: Kueue before 0.18 makes a label of it, of at most 63."""


def workload_name(job_name: str, uid: str, retry: int) -> str:
    """The name of a job's Workload; each `spec.retry` has another one, because a finished Workload stays."""
    digest = hashlib.sha256(f"{uid}/{retry}".encode()).hexdigest()[:8]
    return f"{kubernetes_names.KIND.lower()}-{job_name}"[:LONGEST_PREFIX] + f"-{digest}"


def build_workload(job: TpuTrainingJob, settings: JobSettings, *, priority: int | None = None) -> Object:
    """The Workload of a job that has a queue.

    Args:
        job: A job in a cluster.
        settings: Images and defaults of this installation.
        priority: Value of the job's class, a WorkloadPriorityClass or else a PriorityClass; None: it has none.
    """
    assert job.metadata.uid is not None  # set by the API server
    jobset = build_jobset(job, settings)
    annotations = jobset["metadata"]["annotations"].items()
    of_requests = {key: value for key, value in annotations if key.startswith(kubernetes_names.KUEUE_PROVISIONING)}
    spec: Object = {
        "queueName": job.spec.queue,
        "podSets": [_pod_set(each) for each in jobset["spec"]["replicatedJobs"]],
    }
    if priority is not None:
        reference = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": job.spec.priority_class_name}
        for name in queue_priority_class(job.metadata.model_dump()).values():
            reference = {"group": kubernetes_names.KUEUE_GROUP, "kind": "WorkloadPriorityClass", "name": name}
        spec |= {"priorityClassRef": reference, "priority": priority}
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(job.metadata.name, job.metadata.uid, job.spec.retry),
            "namespace": job.metadata.namespace,
            "labels": {kubernetes_names.KUEUE_JOB_UID: job.metadata.uid},
            **({"annotations": of_requests} if of_requests else {}),
            "ownerReferences": owner_references(job),
        },
        "spec": spec,
    }


def _pod_set(replicated: Object) -> Object:
    """The pod set, as in kubernetes-sigs/kueue:pkg/controller/jobs/jobset/jobset_controller.go (PodSets)."""
    job, replicas = replicated["template"]["spec"], replicated["replicas"]
    annotations = job["template"]["metadata"].get("annotations") or {}
    topology: Object = {
        "podIndexLabel": kubernetes_names.COMPLETION_INDEX,
        "subGroupIndexLabel": kubernetes_names.JOB_INDEX,
        "subGroupCount": replicas,
    }
    if (level := annotations.get(kubernetes_names.KUEUE_REQUIRED_TOPOLOGY)) is not None:
        topology["required"] = level
    if (level := annotations.get(kubernetes_names.KUEUE_SLICE_REQUIRED_TOPOLOGY)) is not None:
        topology["podSetSliceRequiredTopology"] = level
        topology["podSetSliceSize"] = int(annotations[kubernetes_names.KUEUE_SLICE_SIZE])
    return {
        "name": replicated["name"],
        "count": replicas * job["parallelism"],
        "template": job["template"],
        "topologyRequest": topology,
    }
