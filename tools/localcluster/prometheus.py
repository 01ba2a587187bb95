"""Prometheus beside the one-machine cluster: it scrapes the metrics of every pod that has a port for them."""

import json
import urllib.parse
import urllib.request
from pathlib import Path

from tools.localcluster.control_plane import ControlPlane, User
from tools.localcluster.names import grant_cluster_role
from tools.localcluster.network import ADDRESS
from tools.localcluster.plain_http import answers
from tools.localcluster.processes import Process

PORT = 9091
URL = f"http://{ADDRESS}:{PORT}"
USER = User("prometheus")
RIGHTS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
PORT_NAMES = "report|metrics"
"""Of a job's processes and of the operator."""


def start_prometheus(plane: ControlPlane, program: Path) -> Process:
    """Returns when it answers."""
    grant_cluster_role(plane, USER.name, RIGHTS)
    file = plane.directory / "prometheus.yaml"
    file.write_text(json.dumps(_configuration(plane.kubeconfig_of_user(USER))))  # JSON is YAML
    flags = {
        "config.file": file,
        "storage.tsdb.path": plane.directory / "prometheus",
        "web.listen-address": f"{ADDRESS}:{PORT}",
    }
    command: list[str | Path] = [program, *(f"--{flag}={value}" for flag, value in flags.items())]
    process = Process("prometheus", command, plane.directory / "prometheus.log")
    process.wait_until_ready("Prometheus", lambda: answers(f"{URL}/-/ready"))
    return process


def query(url: str, expression: str) -> list[dict]:
    """The samples that a Prometheus has of an expression now: each with its labels as `metric` and its `value`."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}", timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def _configuration(kubeconfig: Path) -> dict[str, object]:
    def keep(source: str, pattern: str) -> dict[str, object]:
        return {"action": "keep", "source_labels": [source], "regex": pattern}

    def label(source: str, target: str) -> dict[str, object]:
        return {"source_labels": [source], "target_label": target}

    pods = {
        "job_name": "pods",
        "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(kubeconfig)}],
        "relabel_configs": [
            keep("__meta_kubernetes_pod_container_port_name", PORT_NAMES),
            keep("__meta_kubernetes_pod_phase", "Running"),
            label("__meta_kubernetes_namespace", "namespace"),
            label("__meta_kubernetes_pod_name", "pod"),
        ],
    }
    return {"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": [pods]}
