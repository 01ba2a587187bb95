"""Names of Kubernetes objects: groups, versions, kinds, labels and annotations, ours and those of JobSet and Kueue."""

GROUP = "tpujob.dev"
VERSION = "v1alpha1"
"""That is stored, and that operator and command line ask for: every release serves it, an earlier one nothing else."""
API_VERSION = GROUP + "/" + VERSION
NEWEST_VERSION = "v1beta1"
"""That people write. Both have one schema, so that the API server changes nothing but the name between them."""
NEWEST_API_VERSION = GROUP + "/" + NEWEST_VERSION
KIND = "TpuTrainingJob"
PLURAL = "tputrainingjobs"

OPERATOR = GROUP + "/operator"
"""In `spec.managedBy`: this operator, as where the field is missing."""

JOB_NAME = GROUP + "/job-name"
"""On every child: the name of the TpuTrainingJob."""
INCARNATION = GROUP + "/incarnation"
"""On every child: which JobSet of this job, counted from 1."""
SPEC_HASH = GROUP + "/spec-hash"
"""Annotation on the JobSet: hash of what it was made from. A live JobSet is never compared with a desired one."""

OWNER_LABEL = "app.kubernetes.io/owner"
"""On a TpuTrainingJob: the person or team whose chips it uses, unless the operator is installed with another label."""

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
"""Index of a Job within its replicated job: the slice."""
JOB_GLOBAL_INDEX = _JOBSET + "job-global-index"
GLOBAL_REPLICAS = _JOBSET + "global-replicas"
REPLICATED_JOB_NAME = _JOBSET + "replicatedjob-name"
REPLICATED_JOB_REPLICAS = _JOBSET + "replicatedjob-replicas"
RESTART_ATTEMPT = _JOBSET + "restart-attempt"
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Annotation on a JobSet: one Job for each value of this node label, and one value for each Job."""

BATCH_JOB_NAME = "batch.kubernetes.io/job-name"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Index of a pod within its Job: the host."""
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
"""Annotations of a pod whose Job has `backoffLimitPerIndex`: how many of its index failed before it, and how many more
by a rule to ignore them; the second one is not there while it is 0 (kubernetes/api:batch/v1/types.go)."""

# Kueue: kubernetes-sigs/kueue:apis/kueue/v1beta2/topology_types.go.
KUEUE_GROUP = "kueue.x-k8s.io"
_KUEUE = KUEUE_GROUP + "/"
KUEUE_QUEUE = _KUEUE + "queue-name"
MULTIKUEUE = _KUEUE + "multikueue"
"""In `spec.managedBy`: Kueue, which has another cluster run the job."""
KUEUE_PREBUILT_WORKLOAD = _KUEUE + "prebuilt-workload-name"
"""Label of what MultiKueue copies to a worker cluster: the Workload there, which has its place already."""
KUEUE_PROVISIONING = "provreq." + _KUEUE
"""Prefix of annotations that a Workload has from what it was made for."""
KUEUE_JOB_UID = _KUEUE + "job-uid"
"""Label of a Workload: the uid of the JobSet that it was made for."""
KUEUE_REQUIRED_TOPOLOGY = _KUEUE + "podset-required-topology"
"""Annotation on a pod template: the node label whose value all pods of the replicated job share."""
KUEUE_SLICE_REQUIRED_TOPOLOGY = _KUEUE + "podset-slice-required-topology"
"""The same for each group of `KUEUE_SLICE_SIZE` pods."""
KUEUE_SLICE_SIZE = _KUEUE + "podset-slice-size"

REPLICATED_JOB = "w"
"""Name of the one replicated job; short, because pod names have 63 characters for everything."""
CONTAINER = "main"
"""Name of the container that runs the process; the pod failure policy refers to it."""

CODE_CONTAINER = "code"
"""Name of the init container that unpacks the job's code."""


def worker_job_name(jobset_name: str) -> str:
    """Name of the Job that JobSet makes for independent workers (kubernetes-sigs/jobset:pkg/util/placement)."""
    return f"{jobset_name}-{REPLICATED_JOB}-0"


def child_name(job_name: str) -> str:
    """Name of what is made beside a job's JobSet: its NetworkPolicy, and the Service that JobSet makes.

    Not the job's own name, which other objects of the namespace may well have.
    """
    return job_name + "-tpujob"
