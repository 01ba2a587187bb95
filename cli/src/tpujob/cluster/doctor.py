"""What a cluster needs before a job can run, each with what is there and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tpujob.cluster.client import ApiError, Cluster, Object
from tpujob_contract import kubernetes_names

Verdict = Literal["ok", "missing", "note"]
ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY = "cloud.google.com/gke-tpu-topology"
TPU = "google.com/tpu"
RIGHTS = (
    ("create", kubernetes_names.GROUP, kubernetes_names.PLURAL),
    ("patch", kubernetes_names.GROUP, kubernetes_names.PLURAL),
    ("get", "", "pods/log"),
)
OPERATOR_SELECTOR = "app.kubernetes.io/name=tpujob-operator"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    verdict: Verdict
    """missing: no job runs without it; note: some do."""
    subject: str
    found: str
    advice: str = ""


def examine(cluster: Cluster) -> Iterator[Finding]:
    """Everything that can be seen of a cluster with the rights of a user."""
    yield _resource(cluster, "TpuTrainingJob", kubernetes_names.API_VERSION, kubernetes_names.PLURAL, _INSTALL_OPERATOR)
    yield _resource(
        cluster, "JobSet", kubernetes_names.JOBSET_API_VERSION, kubernetes_names.JOBSET_PLURAL, _INSTALL_JOBSET
    )
    yield operator(_items(cluster, f"/apis/apps/v1/deployments?labelSelector={OPERATOR_SELECTOR}"))
    kueue = f"/apis/{kubernetes_names.KUEUE_GROUP}/{kubernetes_names.KUEUE_VERSION}"
    yield queues(_items(cluster, f"{kueue}/namespaces/{cluster.namespace}/localqueues"))
    yield from nodes(_items(cluster, f"/api/v1/nodes?labelSelector={ACCELERATOR}"))
    yield from quotas(_items(cluster, f"/api/v1/namespaces/{cluster.namespace}/resourcequotas") or [])
    for verb, group, resource in RIGHTS:
        yield _right(cluster, verb, group, resource)
    yield bucket_access(_items(cluster, f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"))


_INSTALL_OPERATOR = (
    "helm install tpujob charts/tpujob-operator --namespace tpujob-system --create-namespace "
    "--set image.registry=REGISTRY (an administrator does it; docs/install.md)"
)
_INSTALL_JOBSET = "install JobSet v0.12 or newer: https://jobset.sigs.k8s.io/docs/installation/"


def operator(deployments: Sequence[Object] | None) -> Finding:
    """Whether the operator runs; None: that may not be seen."""
    if deployments is None:
        return Finding("note", "operator", "you may not list Deployments, so whether it runs is not known")
    if not deployments:
        return Finding("missing", "operator", "no Deployment of it in any namespace", _INSTALL_OPERATOR)
    ready = sum((d.get("status") or {}).get("readyReplicas") or 0 for d in deployments)
    where = ", ".join(f"{d['metadata']['namespace']}/{d['metadata']['name']}" for d in deployments)
    if not ready:
        namespace = deployments[0]["metadata"]["namespace"]
        return Finding("missing", "operator", f"{where} has no ready pod", f"kubectl -n {namespace} get pods")
    return Finding("ok", "operator", f"{where}, {ready} ready")


def queues(found: Sequence[Object] | None) -> Finding:
    """Kueue's queues of the namespace."""
    if found is None:
        return Finding("note", "Kueue", "not installed, or not to be seen; leave spec.queue out")
    names = ", ".join(q["metadata"]["name"] for q in found)
    if not names:
        return Finding("note", "Kueue", "no LocalQueue in this namespace; leave spec.queue out, or have one made")
    return Finding("ok", "Kueue", f"queues for spec.queue: {names}")


def nodes(found: Sequence[Object] | None) -> Iterator[Finding]:
    """TPU machines by kind and shape."""
    if found is None:
        yield Finding("note", "TPU nodes", "you may not list nodes")
        return
    if not found:
        yield Finding(
            "note",
            "TPU nodes",
            "none at present; node pools that grow from zero have none until a job asks",
            "gcloud container node-pools list --cluster CLUSTER shows pools; accelerator: cpu:2x4 needs none",
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
        yield Finding("ok", "TPU nodes", f"{count} of {accelerator}, topology {topology}")
    if broken:
        yield Finding(
            "note", "TPU nodes", f"{', '.join(broken)} offer no {TPU}", "the device plugin is starting, or broken"
        )


def quotas(found: Sequence[Object]) -> Iterator[Finding]:
    """Quotas of the namespace that limit chips or pods."""
    for quota in found:
        hard, used = (quota.get("status") or {}).get("hard") or {}, (quota.get("status") or {}).get("used") or {}
        for name in (f"requests.{TPU}", "pods"):
            if name in hard:
                yield Finding(
                    "note", "quota", f"{quota['metadata']['name']}: {used.get(name, 0)} of {hard[name]} {name} used"
                )


def bucket_access(accounts: Sequence[Object] | None) -> Finding:
    """Which service accounts stand for a Google account; whether that may write to a bucket only a pod can tell."""
    annotation = "iam.gke.io/gcp-service-account"
    bound = [a for a in accounts or () if (a["metadata"].get("annotations") or {}).get(annotation)]
    if not bound:
        return Finding(
            "note",
            "bucket access",
            "no ServiceAccount here is bound to a Google account by annotation",
            "grant the role on the bucket to the Kubernetes account itself, or see docs/gke.md",
        )
    names = ", ".join(f"{a['metadata']['name']} as {a['metadata']['annotations'][annotation]}" for a in bound)
    return Finding("ok", "bucket access", f"for spec.serviceAccountName: {names}")


def _resource(cluster: Cluster, kind: str, api_version: str, plural: str, advice: str) -> Finding:
    try:
        known = cluster.get(f"/apis/{api_version}")["resources"]
    except ApiError as error:
        if error.status != 404:
            raise
        known = []
    if any(resource["name"] == plural for resource in known):
        return Finding("ok", kind, f"{api_version} is installed")
    return Finding("missing", kind, f"{api_version} is not installed", advice)


def _right(cluster: Cluster, verb: str, group: str, resource: str) -> Finding:
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
        return Finding("ok", "your rights", what)
    return Finding("missing", "your rights", f"you may not {what}", "ask an administrator for a Role with it")


def _items(cluster: Cluster, path: str) -> list[Object] | None:
    """The objects of a list; None where they may not be seen, or their kind is not there."""
    try:
        return list(cluster.items(path))
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise


def as_value(findings: Sequence[Finding]) -> list[Mapping[str, Any]]:
    """Findings as values of JSON."""
    return [vars(finding) for finding in findings]
