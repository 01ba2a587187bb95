"""Checks of what a cluster needs before a job can run: what was found, and what to do."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tpujob.cluster.client import INSTALL_OPERATOR, ApiError, Cluster, Object
from tpujob_contract import ExitCode, kubernetes_names, storage_address

Verdict = Literal["ok", "missing", "note"]
ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY = "cloud.google.com/gke-tpu-topology"
TPU = "google.com/tpu"
RIGHTS = (
    ("create", kubernetes_names.GROUP, kubernetes_names.PLURAL),
    ("patch", kubernetes_names.GROUP, kubernetes_names.PLURAL),
    ("update", kubernetes_names.GROUP, kubernetes_names.PLURAL),
    ("get", "", "pods/log"),
)
OPERATOR_SELECTOR = "app.kubernetes.io/name=tpujob-operator"


@dataclass(frozen=True)
class CheckResult:
    """The result of one check."""

    verdict: Verdict
    """missing: no job runs without it; note: some do."""
    subject: str
    found: str
    advice: str = ""


def examine(cluster: Cluster) -> Iterator[CheckResult]:
    """The results of all checks, which need no more than a user's rights."""
    yield _resource(cluster, "TpuTrainingJob", kubernetes_names.API_VERSION, kubernetes_names.PLURAL, INSTALL_OPERATOR)
    yield _resource(
        cluster, "JobSet", kubernetes_names.JOBSET_API_VERSION, kubernetes_names.JOBSET_PLURAL, _INSTALL_JOBSET
    )
    yield kubernetes_version(str(cluster.get("/version").get("gitVersion", "")))
    for addon in ADDONS:
        deployments = _items(cluster, f"/apis/apps/v1/deployments?labelSelector=app.kubernetes.io/name={addon.name}")
        yield from addon_version(addon, deployments)
    yield operator(_items(cluster, f"/apis/apps/v1/deployments?labelSelector={OPERATOR_SELECTOR}"))
    kueue = _served(cluster, kubernetes_names.KUEUE_GROUP)
    queue_path = f"/apis/{kueue}/namespaces/{cluster.namespace}/localqueues"
    yield queues(None if kueue is None else _items(cluster, queue_path))
    yield from nodes(_items(cluster, f"/api/v1/nodes?labelSelector={ACCELERATOR}"))
    yield from quotas(_items(cluster, f"/api/v1/namespaces/{cluster.namespace}/resourcequotas") or [])
    for verb, group, resource in RIGHTS:
        yield _right(cluster, verb, group, resource)
    yield from images(_items(cluster, f"/api/v1/namespaces/{cluster.namespace}/pods") or [])
    yield bucket_access(_items(cluster, f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"))
    yield from buckets(_items(cluster, cluster.job_path()) or [])


@dataclass(frozen=True)
class Addon:
    """A controller that jobs use, and its oldest release with which all of tpujob works."""

    subject: str
    name: str
    """Of its Deployments, in the label `app.kubernetes.io/name`, and of its image."""
    oldest: tuple[int, int]
    loss: str
    """What an older release does wrong."""


ADDONS = (
    # kubernetes-sigs/jobset:CHANGELOG/CHANGELOG-0.12.md, #1154 and #1167.
    Addon(
        "JobSet", "jobset", (0, 12), "it counts Jobs and pods of a deleted JobSet as those of a new one of that name"
    ),
    # kubernetes-sigs/kueue:CHANGELOG/CHANGELOG-0.15.md, #7304.
    Addon("Kueue", "kueue", (0, 15), "it does not serve v1beta2, in which Workloads of MultiKueue's jobs are made"),
)
OLDEST_KUBERNETES = (1, 31)
"""As `kubeVersion` in the chart has it."""


def kubernetes_version(found: str) -> CheckResult:
    """Whether the API server is new enough; `found` is its `gitVersion`."""
    return _version_result("Kubernetes", found, "the API server", OLDEST_KUBERNETES, "the chart does not install on it")


def addon_version(addon: Addon, deployments: Sequence[Object] | None) -> Iterator[CheckResult]:
    """The version of each Deployment of an addon; None: they may not be listed."""
    for deployment in deployments or ():
        metadata, pod = deployment["metadata"], deployment["spec"]["template"]["spec"]
        images = [re.fullmatch(rf"(?:.*/)?{addon.name}:([^@]+)(?:@.*)?", each["image"]) for each in pod["containers"]]
        # Another Deployment with that label, such as a dashboard, has another image.
        for found in filter(None, images):
            where = f"{metadata['namespace']}/{metadata['name']}"
            yield _version_result(addon.subject, found[1], where, addon.oldest, addon.loss)


def _version_result(subject: str, found: str, where: str, oldest: tuple[int, int], loss: str) -> CheckResult:
    numbers = re.match(r"v?(\d+)\.(\d+)", found)
    needed = f"{oldest[0]}.{oldest[1]} or newer"
    if numbers is None:
        return CheckResult(
            "note", subject, f"{where} has version {found!r}, of which no number is known", f"use {needed}"
        )
    if (int(numbers[1]), int(numbers[2])) < oldest:
        return CheckResult("note", subject, f"{where} is {found}; tpujob needs {needed}: {loss}", "upgrade it")
    return CheckResult("ok", subject, f"{where} is {found}, and {needed} is needed")


_INSTALL_JOBSET = "install JobSet v0.12 or newer: https://jobset.sigs.k8s.io/docs/installation/"


def operator(deployments: Sequence[Object] | None) -> CheckResult:
    """Whether the operator runs; None: Deployments may not be listed."""
    if deployments is None:
        return CheckResult("note", "operator", "you may not list Deployments, so whether it runs is not known")
    if not deployments:
        return CheckResult("missing", "operator", "no Deployment of it in any namespace", INSTALL_OPERATOR)
    ready = sum((d.get("status") or {}).get("readyReplicas") or 0 for d in deployments)
    where = ", ".join(f"{d['metadata']['namespace']}/{d['metadata']['name']}" for d in deployments)
    if not ready:
        namespace = deployments[0]["metadata"]["namespace"]
        return CheckResult("missing", "operator", f"{where} has no ready pod", f"kubectl -n {namespace} get pods")
    return CheckResult("ok", "operator", f"{where}, {ready} ready")


def queues(found: Sequence[Object] | None) -> CheckResult:
    """Kueue's queues of the namespace; None: Kueue is not installed, or they may not be listed."""
    if found is None:
        return CheckResult("note", "Kueue", "not installed, or not to be seen; leave spec.queue out")
    names = ", ".join(q["metadata"]["name"] for q in found)
    if not names:
        return CheckResult("note", "Kueue", "no LocalQueue in this namespace; leave spec.queue out, or have one made")
    return CheckResult("ok", "Kueue", f"queues for spec.queue: {names}")


def nodes(found: Sequence[Object] | None) -> Iterator[CheckResult]:
    """TPU nodes by type and topology; None: nodes may not be listed."""
    if found is None:
        yield CheckResult("note", "TPU nodes", "you may not list nodes")
        return
    if not found:
        yield CheckResult(
            "note",
            "TPU nodes",
            "none at present; node pools that grow from zero have none until a job asks",
            "`tpujob render JOB.YAML --node-pools` prints the lines that create them; accelerator: cpu:2x4 needs none",
        )
        return
    kinds: Counter[tuple[str, str]] = Counter()
    broken = []
    for node in found:
        labels = node["metadata"]["labels"]
        kinds[labels[ACCELERATOR], labels.get(TOPOLOGY, "no topology label")] += 1
        if not int((node.get("status", {}).get("allocatable") or {}).get(TPU, 0)):
            broken.append(node["metadata"]["name"])
    for (accelerator, topology), count in sorted(kinds.items()):
        yield CheckResult("ok", "TPU nodes", f"{count} of {accelerator}, topology {topology}")
    if broken:
        yield CheckResult(
            "note", "TPU nodes", f"{', '.join(broken)} offer no {TPU}", "the device plugin is starting, or broken"
        )


def quotas(found: Sequence[Object]) -> Iterator[CheckResult]:
    """Quotas of the namespace that limit chips or pods."""
    for quota in found:
        hard, used = (quota.get("status") or {}).get("hard") or {}, (quota.get("status") or {}).get("used") or {}
        for name in (f"requests.{TPU}", "pods"):
            if name in hard:
                yield CheckResult(
                    "note", "quota", f"{quota['metadata']['name']}: {used.get(name, 0)} of {hard[name]} {name} used"
                )


def images(pods: Sequence[Object]) -> Iterator[CheckResult]:
    """Images that pods of the namespace cannot start from, each once, with the kubelet's message."""
    refused: dict[str, tuple[str, str]] = {}
    for pod in pods:
        status = pod.get("status") or {}
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in NO_IMAGE:
                words = f"{pod['metadata']['name']}: {waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
                refused.setdefault(container["image"], (words, waiting["reason"]))
    if refused:
        from tpujob_resource.messages import remedies
    for image, (words, reason) in refused.items():
        yield CheckResult("note", "image", f"{image} does not start: {words}", remedies.for_waiting(reason))


NO_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
"""The kubelet's reasons: kubernetes/kubernetes:pkg/kubelet/images/types.go."""


def buckets(jobs: Sequence[Object]) -> Iterator[CheckResult]:
    """The checkpoint buckets of jobs, from their status: that a checkpoint was saved, or why it cannot be."""
    for job in jobs:
        directory, status = job["spec"].get("checkpointDir"), job.get("status") or {}
        if not storage_address.is_bucket(directory or ""):
            continue
        name, account = job["metadata"]["name"], job["spec"].get("serviceAccountName") or "default"
        trouble = _bucket_trouble(status)
        if trouble:
            yield CheckResult("note", "bucket", f"pods of {name}, {directory}: {trouble}", _BUCKET_ADVICE)
        elif status.get("lastCheckpointStep") is not None:
            step = status["lastCheckpointStep"]
            yield CheckResult("ok", "bucket", f"{account} saved step {step} of {name} to {directory}")


def _bucket_trouble(status: Mapping[str, Any]) -> str | None:
    """Why a job's pods cannot use its checkpoint directory; None: no problem is known."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "CheckpointHealthy" and condition["status"] == "False":
            return str(condition.get("message", ""))
    failure = status.get("failure") or {}
    return str(failure.get("message", "")) if failure.get("exitCode") == ExitCode.NOT_FOUND else None


_BUCKET_ADVICE = "grant the role on the bucket to the job's service account; docs/gke.md"


def bucket_access(accounts: Sequence[Object] | None) -> CheckResult:
    """Which service accounts are bound to a Google account; only a pod can tell whether it may write to a bucket."""
    annotation = "iam.gke.io/gcp-service-account"
    bound = [a for a in accounts or () if (a["metadata"].get("annotations") or {}).get(annotation)]
    if not bound:
        return CheckResult(
            "note",
            "bucket access",
            "no ServiceAccount here is bound to a Google account by annotation",
            "grant the role on the bucket to the Kubernetes account itself, or see docs/gke.md",
        )
    names = ", ".join(f"{a['metadata']['name']} as {a['metadata']['annotations'][annotation]}" for a in bound)
    return CheckResult("ok", "bucket access", f"for spec.serviceAccountName: {names}")


def _resource(cluster: Cluster, kind: str, api_version: str, plural: str, advice: str) -> CheckResult:
    try:
        known = cluster.get(f"/apis/{api_version}")["resources"]
    except ApiError as error:
        if error.status != 404:
            raise
        known = []
    if any(resource["name"] == plural for resource in known):
        return CheckResult("ok", kind, f"{api_version} is installed")
    return CheckResult("missing", kind, f"{api_version} is not installed", advice)


def _served(cluster: Cluster, group: str) -> str | None:
    """The version of an API group that the server prefers, as `group/version`; None: not served or visible."""
    try:
        preferred: str = cluster.get(f"/apis/{group}")["preferredVersion"]["groupVersion"]
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return None
    return preferred


def _right(cluster: Cluster, verb: str, group: str, resource: str) -> CheckResult:
    name, _, subresource = resource.partition("/")
    attributes = {"namespace": cluster.namespace, "verb": verb, "group": group, "resource": name}
    answer = cluster.create(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes | ({"subresource": subresource} if subresource else {})},
        },
    )
    what = f"{verb} {resource} in {cluster.namespace}"
    if answer["status"]["allowed"]:
        return CheckResult("ok", "your rights", what)
    return CheckResult("missing", "your rights", f"you may not {what}", "ask an administrator for a Role with it")


def _items(cluster: Cluster, path: str) -> list[Object] | None:
    """The objects of a list; None: they may not be listed, or their kind is not installed."""
    try:
        return list(cluster.items(path))
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise


def as_value(results: Sequence[CheckResult]) -> list[Mapping[str, Any]]:
    """Results as JSON values."""
    return [vars(result) for result in results]
