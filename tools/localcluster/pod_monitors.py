"""Translates a PodMonitor to scrape configurations, as the Prometheus Operator does. Pure."""

import re
from pathlib import Path
from typing import Any

from tools.localcluster.api import Object

LABEL = "__meta_kubernetes_pod_label"
SNAKE = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
"""Relabeling fields of a PodMonitor and their names in Prometheus; the others are the same."""


def scrape_configs(monitor: Object, kubeconfig: Path) -> list[dict[str, Any]]:
    """The scrape configuration of each endpoint of the monitor; without an interval, so the global one applies.

    Args:
        monitor: A PodMonitor.
        kubeconfig: With which Prometheus discovers pods.
    """
    metadata, spec = monitor["metadata"], monitor["spec"]
    chosen = [*_selected(spec["selector"])]
    found = []
    for number, endpoint in enumerate(spec["podMetricsEndpoints"]):
        discovery: dict[str, Any] = {"role": "pod", "kubeconfig_file": str(kubeconfig)}
        namespaces = spec.get("namespaceSelector", {"matchNames": [metadata["namespace"]]})
        if not namespaces.get("any"):
            discovery["namespaces"] = {"names": namespaces["matchNames"]}
        own = [{SNAKE.get(key, key): value for key, value in each.items()} for each in endpoint.get("relabelings", [])]
        relabelings = [
            *chosen,
            _rule("drop", "__meta_kubernetes_pod_phase", "Failed|Succeeded"),
            _rule("keep", "__meta_kubernetes_pod_container_port_name", endpoint["port"]),
            {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
            {"source_labels": ["__meta_kubernetes_pod_container_name"], "target_label": "container"},
            {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"},
            *own,
        ]
        name = f"podMonitor/{metadata['namespace']}/{metadata['name']}/{number}"
        found.append({"job_name": name, "kubernetes_sd_configs": [discovery], "relabel_configs": relabelings})
    return found


def _selected(selector: Object) -> list[dict[str, Any]]:
    rules = [
        _rule("keep", _meta(LABEL, key), re.escape(value)) for key, value in selector.get("matchLabels", {}).items()
    ]
    for expression in selector.get("matchExpressions", []):
        if expression["operator"] != "Exists":
            raise ValueError(f"selector operator {expression['operator']}: only Exists is known here")
        rules.append(_rule("keep", _meta(f"{LABEL}present", expression["key"]), "true"))
    return rules


def _meta(prefix: str, key: str) -> str:
    return f"{prefix}_{re.sub(r'[^a-zA-Z0-9_]', '_', key)}"


def _rule(action: str, source: str, pattern: str) -> dict[str, Any]:
    return {"action": action, "source_labels": [source], "regex": pattern}
