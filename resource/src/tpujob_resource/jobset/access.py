"""Who may connect to a job's pods: its NetworkPolicy, and the Secret whose text its launchers show each other.

The job itself reaches all ports, operator and monitoring only its reports.

The protocols of the coordinator and megascale ports have no authentication: any client that connects joins the job.
All egress is allowed, because we cannot know a job's buckets, data sets and registries.
"""

from typing import Any

from tpujob_contract import kubernetes_names, ports
from tpujob_resource.jobset.build import child_labels, owner_references
from tpujob_resource.jobset.environment import shares_secret
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.models.spec import launcher_serves_account

type Object = dict[str, Any]

NAMESPACE_LABEL = "kubernetes.io/metadata.name"
"""Kubernetes itself sets this label on every namespace."""


def network_policy(job: TpuTrainingJob, settings: JobSettings) -> Object:
    """The NetworkPolicy of a job's pods."""
    own_pods = {"podSelector": {"matchLabels": {kubernetes_names.JOB_NAME: job.metadata.name}}}
    readers = [
        {"namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}}}
        for namespace in dict.fromkeys((settings.namespace, settings.monitoring_namespace))
    ]
    metadata: Object = {
        "name": kubernetes_names.child_name(job.metadata.name),
        "namespace": job.metadata.namespace,
        "labels": child_labels(job),
    }
    owners = owner_references(job)
    reports = [ports.REPORT, ports.IN_PLACE] if launcher_serves_account(job.spec) else [ports.REPORT]
    ingress: list[Object] = [{"from": readers, "ports": [{"protocol": "TCP", "port": port} for port in reports]}]
    if job.spec.workers is None:
        # All ports, because libtpu and gloo choose some themselves.
        ingress.insert(0, {"from": [own_pods]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata | ({"ownerReferences": owners} if owners else {}),
        "spec": {**own_pods, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def build_secret(job: TpuTrainingJob) -> Object | None:
    """The Secret of a job, of all its incarnations, without its text; None: the job needs none."""
    if not shares_secret(job):
        return None
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": kubernetes_names.secret_name(str(job.metadata.uid)),
            "namespace": job.metadata.namespace,
            "labels": child_labels(job),
            "ownerReferences": owner_references(job),
        },
        "immutable": True,
    }
