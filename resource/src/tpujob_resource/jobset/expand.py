"""The pods of a JobSet, as its controller and the Job controller would create them, with their environment resolved.

`tpujob run` starts these pods as processes of one machine, and the tests read their environment as the trainer does.
This module knows JobSet, not our jobs: all values come from the manifest, through the same field references that the
kubelet resolves.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tpujob_contract import kubernetes_names

_REFERENCE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod of a JobSet, before it is scheduled."""

    name: str
    """Without the random suffix that Kubernetes appends: JOBSET-JOB-SLICE-HOST."""
    namespace: str
    hostname: str
    """Its name within the subdomain."""
    subdomain: str | None
    """Headless Service of the JobSet; None: pods have no DNS names."""
    slice_index: int
    """Index of its Job within the replicated job."""
    host_index: int
    """Completion index within its Job."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    """Pod specification."""

    @property
    def dns_name(self) -> str | None:
        """The name by which pods of the same namespace resolve it; None: it has none."""
        return f"{self.hostname}.{self.subdomain}" if self.subdomain else None

    @property
    def container(self) -> Mapping[str, Any]:
        """The main container."""
        found: Mapping[str, Any] = next(c for c in self.spec["containers"] if c["name"] == kubernetes_names.CONTAINER)
        return found

    @cached_property
    def environ(self) -> dict[str, str]:
        """The main container's variables whose values the manifest determines; see `from_cluster` for the others.

        Raises:
            KeyError: A variable refers to a label that the pod does not have. A missing annotation gives "".
            ValueError: A variable refers to a field that is known only on a node.
        """
        environ: dict[str, str] = {"JOB_COMPLETION_INDEX": str(self.host_index)}
        for variable in self.container.get("env", ()):
            source = variable.get("valueFrom")
            if source is None:
                environ[variable["name"]] = expand_references(variable.get("value", ""), environ)
            elif "fieldRef" in source:
                environ[variable["name"]] = self._field(source["fieldRef"]["fieldPath"])
        return environ

    @property
    def from_cluster(self) -> dict[str, Mapping[str, Any]]:
        """The references of variables whose value is in a Secret or a ConfigMap, by variable."""
        return {
            variable["name"]: variable["valueFrom"]
            for variable in self.container.get("env", ())
            if "valueFrom" in variable and "fieldRef" not in variable["valueFrom"]
        }

    @property
    def argv(self) -> tuple[str, ...]:
        """Command and arguments of the main container, with $(NAME) replaced as by the kubelet."""
        words: Sequence[str] = [*self.container.get("command", ()), *self.container.get("args", ())]
        return tuple(expand_references(word, self.environ) for word in words)

    def _field(self, path: str) -> str:
        match = re.fullmatch(r"metadata\.(labels|annotations)\['([^']+)'\]", path)
        if match:
            if match[1] == "annotations":
                return self.annotations.get(match[2], "")
            return self.labels[match[2]]
        match path:
            case "metadata.name":
                return self.name
            case "metadata.namespace":
                return self.namespace
        raise ValueError(f"{path} of pod {self.name} is known only on a node")


def expand_pods(jobset: Mapping[str, Any], *, restart_attempt: int = 0) -> list[Pod]:
    """The pods of a JobSet, slice by slice and host by host: in order of process id.

    Names and labels are those of kubernetes-sigs/jobset:pkg/controllers/jobset_controller.go and the Job controller.

    Args:
        jobset: A JobSet with Indexed Jobs.
        restart_attempt: How often JobSet has restarted it.
    """
    pods: list[Pod] = []
    metadata, spec = jobset["metadata"], jobset["spec"]
    total = sum(replicated.get("replicas", 1) for replicated in spec["replicatedJobs"])
    job_global_index = 0
    for replicated in spec["replicatedJobs"]:
        job_spec = replicated["template"]["spec"]
        template = job_spec["template"]
        for job_index in range(replicated.get("replicas", 1)):
            job_name = f"{metadata['name']}-{replicated['name']}-{job_index}"
            job_labels = {
                kubernetes_names.JOBSET_NAME: metadata["name"],
                kubernetes_names.REPLICATED_JOB_NAME: replicated["name"],
                kubernetes_names.REPLICATED_JOB_REPLICAS: str(replicated.get("replicas", 1)),
                kubernetes_names.GLOBAL_REPLICAS: str(total),
                kubernetes_names.JOB_GLOBAL_INDEX: str(job_global_index),
                kubernetes_names.JOB_INDEX: str(job_index),
                kubernetes_names.RESTART_ATTEMPT: str(restart_attempt),
                kubernetes_names.BATCH_JOB_NAME: job_name,
            }
            job_global_index += 1
            pods.extend(
                _pod(metadata, spec.get("network", {}), job_name, job_index, index, job_labels, template)
                for index in range(min(job_spec.get("parallelism", 1), job_spec.get("completions", 1)))
            )
    return pods


def _pod(
    metadata: Mapping[str, Any],
    network: Mapping[str, Any],
    job_name: str,
    job_index: int,
    index: int,
    job_labels: Mapping[str, str],
    template: Mapping[str, Any],
) -> Pod:
    own = template.get("metadata", {})
    has_dns = network.get("enableDNSHostnames", True)
    return Pod(
        name=f"{job_name}-{index}",
        namespace=metadata.get("namespace", "default"),
        hostname=f"{job_name}-{index}",
        subdomain=network.get("subdomain", metadata["name"]) if has_dns else None,
        slice_index=job_index,
        host_index=index,
        labels={**own.get("labels", {}), **job_labels, kubernetes_names.COMPLETION_INDEX: str(index)},
        annotations={**own.get("annotations", {}), kubernetes_names.COMPLETION_INDEX: str(index)},
        spec=template["spec"],
    )


def expand_references(text: str, environ: Mapping[str, str]) -> str:
    """A value or an argument with $(NAME) replaced by values from `environ`; $$ is a dollar, unknown names stay."""
    return _REFERENCE.sub(lambda m: "$" if m[0] == "$$" else environ.get(m[1], m[0]), text)
