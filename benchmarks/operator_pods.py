"""Creates pods of many jobs quickly, by writing copies of the pods of one job to etcd.

Through the API, a pod takes the API server, two webhooks and the Job controller some 15 ms of processor time: 64,000
pods a quarter of an hour on two cores. The pods of the copied job were created that way; a copy differs only in names
and uids. While they are written, kube-controller-manager is stopped, so that the Job controller does not create the
same pods; when it is back, it adopts them by uid, label and owner. Each pod is a separate write, as the API server's
are: with several pods of the same resource version, a watch that resumes from that version would miss some.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.request
import uuid
from typing import Any

from benchmarks.operator_cluster import NAMESPACE
from tools.localcluster.control_plane import ControlPlane
from tpujob_contract import kubernetes_names

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
WORKER_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"


class PodCopies:
    """Writes copies of the running pods of one job, for other jobs of the same size."""

    def __init__(self, plane: ControlPlane, job: str) -> None:
        """Reads the pods of the job to copy."""
        self._plane = plane
        selector = f"labelSelector={kubernetes_names.JOBSET_NAME}%3D{job}"
        (self._worker_job,) = plane.api.items(f"{WORKER_JOBS}?{selector}")
        self._pods = plane.api.items(f"{PODS}?{selector}")

    def write(self, worker_job: dict[str, Any]) -> int:
        """Writes the pods of another job's Job; returns their number."""
        names = _differences(self._worker_job, worker_job)
        for pod in self._pods:
            body = json.dumps(_put(_copy(pod, names))).encode()
            request = urllib.request.Request(f"{self._plane.etcd_url}/v3/kv/put", data=body)  # noqa: S310 — http
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                answer.read()
        return len(self._pods)


def worker_jobs(plane: ControlPlane, count: int, *, limit_seconds: float) -> list[dict[str, Any]]:
    """Waits until JobSet has created `count` Jobs, or the time is over; returns them."""
    until = time.monotonic() + limit_seconds
    while True:
        found: list[dict[str, Any]] = plane.api.items(WORKER_JOBS)
        if len(found) >= count or time.monotonic() > until:
            return found
        time.sleep(2)


def wait_until_counted(plane: ControlPlane, hosts: int, *, limit_seconds: float) -> int:
    """Waits until all Jobs count their pods as ready, or the time is over; returns how many do."""
    until = time.monotonic() + limit_seconds
    while True:
        found = plane.api.items(WORKER_JOBS)
        counted = len([job for job in found if (job.get("status") or {}).get("ready") == hosts])
        if counted == len(found) or time.monotonic() > until:
            return counted
        time.sleep(5)


def job_of(worker_job: dict[str, Any]) -> str:
    """The name of a Job's JobSet, which is the name of the job in its first incarnation."""
    name: str = worker_job["metadata"]["labels"][kubernetes_names.JOBSET_NAME]
    return name


def _differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, str]:
    """Texts in the pods of one Job → their replacements for another: uids, hashes, and last the job's name."""
    labels, others = (job["spec"]["template"]["metadata"]["labels"] for job in (old, new))
    owner, other_owner = (job["metadata"]["ownerReferences"][0] for job in (old, new))
    found = {labels[name]: others[name] for name in labels if labels[name] != others[name]}
    found |= {old["metadata"]["uid"]: new["metadata"]["uid"], owner["uid"]: other_owner["uid"]}
    name, other_name = job_of(old), job_of(new)
    found.pop(name, None)
    return {**found, name: other_name}


def _copy(pod: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    metadata = {key: value for key, value in pod["metadata"].items() if key != "resourceVersion"}
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {**metadata, "uid": str(uuid.uuid4())}})
    for old, new in names.items():
        text = text.replace(old, new)
    copied: dict[str, Any] = json.loads(text)
    return copied


def _put(pod: dict[str, Any]) -> dict[str, str]:
    key = f"/registry/pods/{NAMESPACE}/{pod['metadata']['name']}"
    pair = {"key": key.encode(), "value": json.dumps(pod, separators=(",", ":")).encode()}
    return {name: base64.b64encode(value).decode() for name, value in pair.items()}
