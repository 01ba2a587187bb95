"""Tests what only a pod can tell: that a job's image starts, and that its service account may use its bucket.

The pod belongs to a minimal job, on CPU devices and outside every queue: it needs only the rights that `tpujob submit`
needs, and the operator gives it the image, the service account and the security context of a real job's pods.
"""

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tpujob.cluster.changing import create
from tpujob.cluster.client import Cluster, Object
from tpujob.cluster.doctor import CheckResult
from tpujob.cluster.watch import has_ended
from tpujob_contract import kubernetes_names
from tpujob_resource.models.phases import Phase

LIMIT_SECONDS = 300
"""A node without the image takes minutes to pull it."""
KEPT = (
    "env", "volumes", "podLabels", "podAnnotations", "serviceAccountName", "imagePullPolicy", "imagePullSecrets",
    "priorityClassName", "tolerations",
)  # fmt: skip
"""Fields that a probe takes from the job: identity, access and admission of its pods, not the choice of machines."""
INTERVAL_SECONDS = 1.0


@dataclass(frozen=True)
class Probe:
    """A job of one pod, and what its success proves."""

    subject: str
    manifest: Object
    success: str


def probes(job: Mapping[str, Any]) -> Iterator[Probe]:
    """The probes for what a job needs, which is valid, and given as written."""
    spec = job["spec"]
    account, directory = spec.get("serviceAccountName") or "default", spec.get("checkpointDir")
    image = f"{spec.get('image') or 'the image of the trainer'} starts"
    if spec.get("command"):
        program = {"image": spec["image"], "command": ["python3", "-c", "pass"]}
        yield Probe("image", _manifest(job, program), image)
        if directory is None:
            return
    own_image = {} if spec.get("command") or not spec.get("image") else {"image": spec["image"]}
    trainer = {"task": "probe", "model": {"preset": "tiny"}, "data": {"path": "/dev/null", "tokenizer": "bytes"}}
    used = f"{account} wrote, listed, read and deleted an object in {directory}"
    asked = {**own_image, "trainer": trainer, **({"checkpointDir": directory} if directory else {})}
    yield Probe("bucket" if directory else "image", _manifest(job, asked), used if directory else image)


def _manifest(job: Mapping[str, Any], asked: Mapping[str, Any]) -> Object:
    name = f"probe-{job['metadata']['name'][:20].rstrip('.-')}-{secrets.token_hex(3)}"
    spec = {
        "accelerator": "cpu:1x1",
        **{key: job["spec"][key] for key in KEPT if key in job["spec"]},
        **asked,
        "restarts": {"crashes": 0},
        "activeDeadlineSeconds": LIMIT_SECONDS,
        "ttlSecondsAfterFinished": 60,
    }
    return {
        "apiVersion": kubernetes_names.API_VERSION,
        "kind": kubernetes_names.KIND,
        "metadata": {"name": name},
        "spec": spec,
    }


def try_out(cluster: Cluster, probe: Probe) -> CheckResult:
    """Runs a probe and returns its result; its job is deleted in any case.

    Raises:
        CommandError: the job cannot be made, or the cluster does not answer.
    """
    began = time.monotonic()
    name = create(cluster, probe.manifest, dry_run=False)["metadata"]["name"]
    try:
        status: Mapping[str, Any] = {}
        while not has_ended(status) and not cannot_start(status) and time.monotonic() - began < LIMIT_SECONDS:
            time.sleep(INTERVAL_SECONDS)
            status = cluster.job(name).get("status") or {}
    finally:
        cluster.delete(cluster.job_path(name))
    return verdict(probe, status, time.monotonic() - began)


def cannot_start(status: Mapping[str, Any]) -> bool:
    """Whether the kubelet refuses the pod: its image, a Secret or its command."""
    return any(condition["reason"] == "CannotStart" for condition in _blocked(status))


def _blocked(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    conditions = status.get("conditions") or ()
    return [each for each in conditions if each["type"] == "Blocked" and each["status"] == "True"]


def verdict(probe: Probe, status: Mapping[str, Any], seconds: float) -> CheckResult:
    """The result of a probe whose job has this status."""
    if status.get("phase") == Phase.SUCCEEDED:
        return CheckResult("ok", probe.subject, f"{probe.success} (a pod tried it, {seconds:.0f} s)")
    hindrance = " ".join(condition.get("message", "") for condition in _blocked(status))
    message = (status.get("failure") or {}).get("message") or hindrance or status.get("message") or ""
    if not has_ended(status) and not cannot_start(status):
        waited = message or "the operator has not seen it; does it run?"
        return CheckResult("missing", probe.subject, f"a pod that tries it did not end in {seconds:.0f} s: {waited}")
    advice = "docs/gke.md, Access to the bucket" if probe.subject == "bucket" else ""
    return CheckResult("missing", probe.subject, f"a pod tried it: {message}", advice)
