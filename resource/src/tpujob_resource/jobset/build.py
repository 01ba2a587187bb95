"""From a job to its JobSet. Pure and total: the same job and settings give the same bytes.

- One replicated job; a slice is a Job, a host a pod, so that Kubernetes' own indexes are slice and host.
- JobSet restarts in place, all slices at once, without a limit: the operator keeps the budget.
- Independent workers are one Job whose indexes fail and are retried alone.
- With `inPlaceRestarts`, a Job replaces a pod that is lost, and the launchers of the others wait for it.
- A live JobSet is never compared with a desired one, its webhooks change it: the hash says what it was made from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_resource.jobset import scheduling
from tpujob_resource.jobset.failure_policy import failure_policy, pod_failure_policy, retries
from tpujob_resource.jobset.pod import pod_template
from tpujob_resource.jobset.volumes import volume_annotations
from tpujob_resource.models.changes import changing_in_place
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.models.shared_units import is_elastic, shares_units
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
        job: as `load_job` accepts it.
        settings: images and defaults of this installation.
        incarnation: which JobSet of this job, from 1; every one has the job's own name.
        avoided: node labels and values of machines that its pods keep off.
        slices: how many it has, where that is not `spec.slices`.
    """
    sized = job if slices is None else job.with_slices(slices)
    return {
        "apiVersion": kubernetes_names.JOBSET_API_VERSION,
        "kind": kubernetes_names.JOBSET_KIND,
        "metadata": _build_metadata(job, incarnation),
        "spec": _build_spec(sized, settings, incarnation, avoided),
    }


def spec_hash(job: TpuTrainingJob) -> str:
    """What a JobSet was made from, as 16 hexadecimal digits; fields that change in place are left out.

    JobSettings do not count: a new release of the operator, with new images, must not end running jobs.
    """
    spec = job.spec.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)
    in_place = changing_in_place(Spec, is_elastic=is_elastic(job.spec))
    made_from = {key: value for key, value in spec.items() if key not in in_place}
    text = json.dumps(made_from, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def child_labels(job: TpuTrainingJob, incarnation: int) -> dict[str, str]:
    """Labels of everything that belongs to a job."""
    return {
        "app.kubernetes.io/name": "tpujob",
        "app.kubernetes.io/managed-by": "tpujob-operator",
        kubernetes_names.JOB_NAME: job.metadata.name,
        kubernetes_names.INCARNATION: str(incarnation),
    }


def owner_references(job: TpuTrainingJob) -> list[Object]:
    """The owner of what is made for a job, so that it goes with it; nothing for a job that is in no cluster."""
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
    metadata: Object = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "labels": {**child_labels(job, incarnation), **_queue_labels(job)},
        "annotations": annotations,
    }
    owners = owner_references(job)
    return metadata | ({"ownerReferences": owners} if owners else {})


def _queue_labels(job: TpuTrainingJob) -> dict[str, str]:
    """The queue, and the Workload that MultiKueue has brought along with the job, in the place of a new one."""
    if job.spec.queue is None:
        return {}
    workload = (job.metadata.labels or {}).get(kubernetes_names.KUEUE_PREBUILT_WORKLOAD)
    prebuilt = {} if workload is None else {kubernetes_names.KUEUE_PREBUILT_WORKLOAD: workload}
    return {kubernetes_names.KUEUE_QUEUE: job.spec.queue, **prebuilt}


def _build_spec(
    job: TpuTrainingJob, settings: JobSettings, incarnation: int, avoided: Sequence[scheduling.Avoided]
) -> Object:
    spec = job.spec
    built: Object = {
        # A queued JobSet is born suspended; from then on the field is Kueue's.
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
    # JobSet makes the Service of this name, or reuses one that exists: a Service called like the job may be anyone's.
    subdomain = kubernetes_names.child_name(job.metadata.name)
    return {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": subdomain}


def _build_job(
    job: TpuTrainingJob, settings: JobSettings, incarnation: int, avoided: Sequence[scheduling.Avoided]
) -> Object:
    pods = job.spec.workers or job.accelerator.hosts_per_slice
    success: Object = {}
    if shares_units(job.spec):
        # Such a worker ends with 0 when every unit is done, whoever did it: one that says so is enough, and neither
        # a worker that failed for good nor one that comes late keeps the job from being complete.
        success["successPolicy"] = {"rules": [{"succeededCount": 1}]}
    return {
        "completionMode": "Indexed",
        "parallelism": pods,
        "completions": pods,
        **retries(job),
        **success,
        # A replacement only when the old pod is gone: it may hold the chips, and its peers count on it.
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": pod_failure_policy(job),
        "template": {
            "metadata": _build_pod_metadata(job, incarnation),
            "spec": pod_template(job, settings, incarnation, avoided),
        },
    }
