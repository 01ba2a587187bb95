"""Beside the JobSets of XPK and of MaxText's recipes: each field that they set is set here, or a sentence says why not.

The fields, not the texts, of AI-Hypercomputer/xpk:src/xpk/commands/workload.py (WORKLOAD_CREATE_YAML) with
src/xpk/core/docker_container.py, and of AI-Hypercomputer/tpu-recipes:training/ironwood/llama3.1-70b/
8k-bf16-tpu7x-4x8x8/k8s/k8s_manifest.yaml, which is a JobSet as XPK writes it for MaxText.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.operator.manifests import container_manifest
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job

JOB = "spec.replicatedJobs.template.spec"
POD = f"{JOB}.template"
MAIN = f"{POD}.spec.containers"

RECIPE: dict[str, Any] = {
    "metadata.name": None,
    "metadata.annotations.alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool",
    "spec.ttlSecondsAfterFinished": 43200,
    "spec.failurePolicy.maxRestarts": None,
    "spec.failurePolicy.rules.action": None,
    "spec.failurePolicy.rules.onJobFailureReasons": None,
    "spec.replicatedJobs.name": None,
    "spec.replicatedJobs.replicas": 1,
    f"{JOB}.parallelism": 64,
    f"{JOB}.completions": 64,
    f"{JOB}.backoffLimit": 0,
    f"{JOB}.podFailurePolicy.rules.action": None,
    f"{JOB}.podFailurePolicy.rules.onExitCodes.containerName": None,
    f"{JOB}.podFailurePolicy.rules.onExitCodes.operator": None,
    f"{JOB}.podFailurePolicy.rules.onExitCodes.values": None,
    f"{POD}.spec.schedulerName": "default-scheduler",
    f"{POD}.spec.imagePullSecrets.name": None,
    f"{POD}.spec.restartPolicy": "Never",
    f"{POD}.spec.nodeSelector.cloud.google.com/gke-tpu-accelerator": "tpu7x",
    f"{POD}.spec.nodeSelector.cloud.google.com/gke-tpu-topology": "4x8x8",
    f"{POD}.spec.hostNetwork": True,
    f"{POD}.spec.dnsPolicy": "ClusterFirstWithHostNet",
    f"{POD}.spec.terminationGracePeriodSeconds": None,
    f"{POD}.spec.tolerations.key": None,
    f"{POD}.spec.tolerations.operator": None,
    f"{POD}.spec.volumes.name": None,
    f"{POD}.spec.volumes.emptyDir.medium": None,
    f"{MAIN}.name": None,
    f"{MAIN}.image": None,
    f"{MAIN}.command": None,
    f"{MAIN}.ports.containerPort": None,
    f"{MAIN}.securityContext.privileged": True,
    f"{MAIN}.resources.limits.google.com/tpu": 4,
    f"{MAIN}.volumeMounts.name": None,
    f"{MAIN}.volumeMounts.mountPath": None,
}
"""Field to its value, where the value follows from the slice and so has to be the same; None where it may differ."""
XPK: dict[str, Any] = {
    **RECIPE,
    "metadata.labels.kueue.x-k8s.io/queue-name": "team",
    "metadata.labels.xpk.google.com/workload": None,
    f"{POD}.metadata.labels.xpk.google.com/workload": None,
    f"{POD}.metadata.annotations.gke-gcsfuse/volumes": "true",
    f"{POD}.spec.priorityClassName": "medium",
    f"{POD}.spec.serviceAccountName": "xpk-sa",
    f"{POD}.spec.affinity": None,
    f"{MAIN}.env.name": None,
    f"{MAIN}.imagePullPolicy": None,
    "sidecar stacktrace-explorer": None,
}

WHY_NOT = {
    f"{POD}.spec.schedulerName": "Kubernetes' own scheduler is the default; a field would name what nobody has.",
    f"{POD}.spec.hostNetwork": (
        "Within a slice ICI needs no host network; between slices of v6e and tpu7x the administrator chooses it "
        "(jobs.multislice.hostNetwork), as NetworkPolicies do not apply to such pods."
    ),
    f"{POD}.spec.dnsPolicy": "It goes with hostNetwork, and is set with it.",
    f"{MAIN}.securityContext.privileged": (
        "GKE 1.28 and later open chips to ordinary containers; the administrator may set jobs.privileged."
    ),
    "metadata.labels.xpk.google.com/workload": "XPK's own label; ours is tpujob.dev/job-name.",
    f"{POD}.metadata.labels.xpk.google.com/workload": "XPK's own label; ours is tpujob.dev/job-name.",
    f"{POD}.spec.affinity": "XPK keeps CPU jobs off TPU nodes by it; TPU pods are placed by node selectors.",
    "sidecar stacktrace-explorer": (
        "It prints libtpu's stack files until the job ends; here the watchdog writes the stacks of all threads to the "
        "log and the termination message, without a second container that may outlive the first."
    ),
}
"""Field to why a JobSet of ours does not have it."""

PLAIN = {"accelerator": "tpu7x:4x8x8", "ttlSecondsAfterFinished": 43200, "imagePullSecrets": [{"name": "registry"}]}
QUEUED = {
    **PLAIN,
    "queue": "team",
    "priorityClassName": "medium",
    "serviceAccountName": "xpk-sa",
    "imagePullPolicy": "Always",
    "volumes": [{"name": "data", "mountPath": "/data", "gcs": {"bucket": "corpus"}}],
}
OTHERS = {"MaxText's recipe": (RECIPE, PLAIN), "XPK": (XPK, QUEUED)}


def fields_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each field of a manifest with its value, lists of objects as if they were one object."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from fields_of(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
        for each in value:
            yield from fields_of(each, path)
    else:
        yield path, value


def ours(spec: dict[str, Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for path, value in fields_of(build_jobset(load_job(container_manifest(**spec)), JobSettings())):
        found.setdefault(path, []).append(value)
    return found


@pytest.mark.parametrize("name", OTHERS)
def test_each_field_of_theirs_is_set_or_has_its_reason(name: str) -> None:
    theirs, spec = OTHERS[name]
    made = ours(spec)
    assert [path for path in theirs if path not in made and path not in WHY_NOT] == []
    for path, value in theirs.items():
        if value is not None and path in made:
            assert value in made[path], path


def test_every_reason_is_for_a_field_that_is_not_set() -> None:
    made = ours(QUEUED).keys() | ours(PLAIN).keys()
    assert [path for path in WHY_NOT if path in made] == []
    assert sorted(WHY_NOT) == sorted({path for path in (*RECIPE, *XPK) if path not in made})
