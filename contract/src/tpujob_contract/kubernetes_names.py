"""Kubernetes API names: groups, versions, kinds, labels and annotations, ours and those of JobSet and Kueue."""

GROUP = "tpujob.dev"
VERSION = "v1beta1"
API_VERSION = GROUP + "/" + VERSION
KIND = "TpuTrainingJob"
PLURAL = "tputrainingjobs"

OPERATOR = GROUP + "/operator"
"""In `spec.managedBy`: this operator manages the job, as it does without the field."""

JOB_NAME = GROUP + "/job-name"
"""On every child: the name of the TpuTrainingJob."""
INCARNATION = GROUP + "/incarnation"
"""On every child: the number of the job's JobSet, from 1."""
SPEC_HASH = GROUP + "/spec-hash"
"""Annotation on the JobSet: hash of its inputs. A live JobSet is never compared with a desired one."""

OWNER_LABEL = "app.kubernetes.io/owner"
"""On a TpuTrainingJob: the person or team whose chips it uses; the operator can be installed with another label."""

JOBSET_GROUP = "jobset.x-k8s.io"
JOBSET_VERSION = "v1alpha2"
JOBSET_API_VERSION = JOBSET_GROUP + "/" + JOBSET_VERSION
JOBSET_KIND = "JobSet"
JOBSET_PLURAL = "jobsets"

# On Jobs and pods, written by JobSet: kubernetes-sigs/jobset:pkg/controllers/jobset_controller.go.
_JOBSET = "jobset.sigs.k8s.io/"
JOBSET_NAME = _JOBSET + "jobset-name"
JOBSET_UID = _JOBSET + "jobset-uid"
JOB_INDEX = _JOBSET + "job-index"
"""Index of a Job within its replicated job, which is the slice."""
JOB_GLOBAL_INDEX = _JOBSET + "job-global-index"
GLOBAL_REPLICAS = _JOBSET + "global-replicas"
REPLICATED_JOB_NAME = _JOBSET + "replicatedjob-name"
REPLICATED_JOB_REPLICAS = _JOBSET + "replicatedjob-replicas"
RESTART_ATTEMPT = _JOBSET + "restart-attempt"
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Annotation on a JobSet: one Job per value of this node label, and one value per Job."""

BATCH_JOB_NAME = "batch.kubernetes.io/job-name"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Index of a pod within its Job, which is the host."""
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
"""Annotations of a pod whose Job has `backoffLimitPerIndex`: how many pods of its index failed before it, and how many
more failures a rule ignored; the second is absent while it is 0 (kubernetes/api:batch/v1/types.go)."""

# Kueue: kubernetes-sigs/kueue:apis/kueue/v1beta2/topology_types.go.
KUEUE_GROUP = "kueue.x-k8s.io"
_KUEUE = KUEUE_GROUP + "/"
KUEUE_QUEUE = _KUEUE + "queue-name"
KUEUE_PRIORITY_CLASS = _KUEUE + "priority-class"
"""Label of a job: its WorkloadPriorityClass, for its place in the queue; `spec.priorityClassName` is of pods."""
MULTIKUEUE = _KUEUE + "multikueue"
"""In `spec.managedBy`: Kueue runs the job in another cluster."""
KUEUE_PREBUILT_WORKLOAD = _KUEUE + "prebuilt-workload-name"
"""On an object that MultiKueue copies to a worker cluster: its Workload there, which has its place already. A label up
to Kueue 0.17; an annotation since 0.18 (gate WorkloadIdentifierAnnotations), since names may be longer than labels."""
KUEUE_PROVISIONING = "provreq." + _KUEUE
"""Prefix of annotations that a Workload copies from the object that it was created for."""
KUEUE_JOB_UID = _KUEUE + "job-uid"
"""Label of a Workload: the UID of the JobSet that it was created for."""
KUEUE_REQUIRED_TOPOLOGY = _KUEUE + "podset-required-topology"
"""Annotation on a pod template: the node label whose value all pods of the replicated job share."""
KUEUE_SLICE_REQUIRED_TOPOLOGY = _KUEUE + "podset-slice-required-topology"
"""The same, for each group of `KUEUE_SLICE_SIZE` pods."""
KUEUE_SLICE_SIZE = _KUEUE + "podset-slice-size"

REPLICATED_JOB = "w"
"""Name of the only replicated job; short, because a pod name has at most 63 characters."""
CONTAINER = "main"
"""Name of the container that runs the process; the pod failure policy refers to it."""

CODE_CONTAINER = "code"
"""Name of the init container that unpacks the job's code."""


SECRET_KEY = "secret"  # noqa: S105 - its name
"""In the data of a job's Secret."""


def secret_name(uid: str) -> str:
    """Name of the Secret of the job with this uid; an earlier job of the same name had another one."""
    return f"tpujob-{uid}"


def worker_job_name(jobset_name: str) -> str:
    """Name of the Job that JobSet creates for independent workers (kubernetes-sigs/jobset:pkg/util/placement)."""
    return f"{jobset_name}-{REPLICATED_JOB}-0"


def child_name(job_name: str) -> str:
    """Name of the objects beside a job's JobSet: its NetworkPolicy, and the Service that JobSet creates.

    Not the job's own name, which other objects in the namespace may have.
    """
    return job_name + "-tpujob"
