"""Label and annotation keys: ours, and those of JobSet and Kubernetes that the wiring reads."""

GROUP = "tpujob.dev"
VERSION = "v1alpha1"
API_VERSION = GROUP + "/" + VERSION
KIND = "TpuTrainingJob"
PLURAL = "tputrainingjobs"

JOB_NAME = GROUP + "/job-name"
"""On every child: the name of the TpuTrainingJob."""
INCARNATION = GROUP + "/incarnation"
"""On every child: which JobSet of this job, counted from 1."""
SPEC_HASH = GROUP + "/spec-hash"
"""Annotation on the JobSet: hash of what it was made from. A live JobSet is never compared with a desired one."""

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
"""Index of a Job within its replicated job: the slice."""
RESTART_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Index of a pod within its Job: the host."""
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"

REPLICATED_JOB = "w"
"""Name of the one replicated job; short, because pod names have 63 characters for everything."""
CONTAINER = "main"
"""Name of the container that runs the process; the pod failure policy refers to it."""
