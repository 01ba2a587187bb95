"""Builds the JobSet of a job. Pure and total: the same job and settings give the same bytes.

- One replicated job; a slice is a Job, a host is a pod, so that Kubernetes' own indexes are slice and host.
- JobSet restarts all slices at once, without a limit: the operator counts restarts.
- Independent workers are one Job whose indexes fail and are retried individually.
- With `inPlaceRestarts`, a Job replaces a lost pod, and the launchers of the others wait for it.
- A live JobSet is never compared with a desired one, because webhooks change it: the hash identifies its inputs.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_resource.jobset import scheduling
from tpujob_resource.jobset.failure_policy import failure_policy, pod_failure_policy, retries
from tpujob_resource.jobset.pod import pod_template
from tpujob_resource.jobset.volumes import volume_annotations
from tpujob_resource.models.fields import changing_in_place
from tpujob_resource.models.job import TpuTrainingJob, is_elastic, prebuilt_workload, queue_priority_class, shares_units
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.models.spec import Spec

type Object = dict[str, Any]


def build_jobset(
    job: TpuTrainingJob,
    settings: JobSettings,
    *,
    incarnation: int = 1,
    avoided: Sequence[scheduling.Avoided] = (),
    slices: int | None = None,
) -> Object:
    """The JobSet that runs a job.

    Args:
        job: A job that `load_job` has accepted.
        settings: Images and defaults of this installation.
        incarnation: The number of the job's JobSet, from 1; all of them have the job's name.
        avoided: Node labels and values of machines that its pods avoid.
        slices: The number of slices; None: `spec.slices`.
    """
    sized = job if slices is None else job.with_slices(slices)
    return {
        "apiVersion": kubernetes_names.JOBSET_API_VERSION,
        "kind": kubernetes_names.JOBSET_KIND,
        "metadata": _build_metadata(job, incarnation),
        "spec": _build_spec(sized, settings, incarnation, avoided),
    }


def spec_hash(job: TpuTrainingJob) -> str:
    """A hash of the spec from which a JobSet is built, 16 hexadecimal digits; excludes fields that change in place.

    JobSettings are not included: a new release of the operator, with new images, must not end running jobs.
    """
    spec = job.spec.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    in_place = changing_in_place(Spec, is_elastic=is_elastic(job.spec))
    made_from = {key: value for key, value in spec.items() if key not in in_place}
    text = json.dumps(made_from, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def child_labels(job: TpuTrainingJob, incarnation: int | None = None) -> dict[str, str]:
    """The labels of all objects of a job; `incarnation`: None for those of every incarnation."""
    return {
        "app.kubernetes.io/name": "tpujob",
        "app.kubernetes.io/managed-by": "tpujob-operator",
        kubernetes_names.JOB_NAME: job.metadata.name,
        **({kubernetes_names.INCARNATION: str(incarnation)} if incarnation is not None else {}),
    }


def owner_references(job: TpuTrainingJob) -> list[Object]:
    """The owner references of a job's objects, with which they are deleted; empty for a job outside a cluster."""
    if job.metadata.uid is None:
        return []
    return [
        {
            "apiVersion": kubernetes_names.API_VERSION,
            "kind": kubernetes_names.KIND,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def _build_metadata(job: TpuTrainingJob, incarnation: int) -> Object:
    annotations = {kubernetes_names.SPEC_HASH: spec_hash(job)}
    annotations |= scheduling.jobset_annotations(job)
    labels = child_labels(job, incarnation)
    if job.spec.queue is not None:
        metadata_of_job = job.metadata.model_dump()
        prebuilt = prebuilt_workload(metadata_of_job)
        labels |= {kubernetes_names.KUEUE_QUEUE: job.spec.queue, **queue_priority_class(metadata_of_job)}
        labels |= prebuilt["labels"]
        annotations |= prebuilt["annotations"]
    metadata: Object = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "labels": labels,
        "annotations": annotations,
    }
    owners = owner_references(job)
    return metadata | ({"ownerReferences": owners} if owners else {})


def _build_spec(
    job: TpuTrainingJob, settings: JobSettings, incarnation: int, avoided: Sequence[scheduling.Avoided]
) -> Object:
    spec = job.spec
    built: Object = {
        # A queued JobSet is created suspended; then Kueue owns the field.
        "suspend": spec.suspend or spec.queue is not None,
        "failurePolicy": failure_policy(job),
        "network": _build_network(job),
        "replicatedJobs": [
            {
                "name": kubernetes_names.REPLICATED_JOB,
                "replicas": job.slices,
                "template": {"spec": _build_job(job, settings, incarnation, avoided)},
            }
        ],
    }
    if spec.ttl_seconds_after_finished is not None:
        built["ttlSecondsAfterFinished"] = spec.ttl_seconds_after_finished
    return built


def _build_pod_metadata(job: TpuTrainingJob, incarnation: int) -> Object:
    annotations = {**(job.spec.pod_annotations or {}), **volume_annotations(job), **scheduling.pod_annotations(job)}
    labels = {**(job.spec.pod_labels or {}), **child_labels(job, incarnation)}
    return {"labels": labels, **({"annotations": annotations} if annotations else {})}


def _build_network(job: TpuTrainingJob) -> Object:
    if job.spec.workers is not None:
        # Without a subdomain GKE gives workers no TPU_WORKER_HOSTNAMES of each other
        # (kubernetes-sigs/jobset:pkg/controllers/jobset_controller.go).
        return {"enableDNSHostnames": False}
    # Pods look for each other before they are ready.
    # JobSet creates the Service, or reuses one with this name: a Service with the job's name may belong to a user.
    subdomain = kubernetes_names.child_name(job.metadata.name)
    return {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": subdomain}


def _build_job(
    job: TpuTrainingJob, settings: JobSettings, incarnation: int, avoided: Sequence[scheduling.Avoided]
) -> Object:
    pods = job.spec.workers or job.accelerator.hosts_per_slice
    success: Object = {}
    if shares_units(job.spec):
        # Such a worker ends with 0 when all units are done, by any worker: one success is enough, and neither a worker
        # that failed permanently nor a late one keeps the job from completing.
        success["successPolicy"] = {"rules": [{"succeededCount": 1}]}
    return {
        "completionMode": "Indexed",
        "parallelism": pods,
        "completions": pods,
        **retries(job),
        **success,
        # Replace a pod only when the old one is gone: it may hold the chips, and its peers depend on it.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": pod_failure_policy(job),
        "template": {
            "metadata": _build_pod_metadata(job, incarnation),
            "spec": pod_template(job, settings, incarnation, avoided),
        },
    }
