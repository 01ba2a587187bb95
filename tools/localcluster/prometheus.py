"""Prometheus for tests, such as the one-machine cluster's: with the chart's PodMonitors and rules."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tools.localcluster.api import Object
from tools.localcluster.control_plane import ControlPlane, User
from tools.localcluster.names import grant_cluster_role
from tools.localcluster.network import ADDRESS
from tools.localcluster.plain_http import answers, opened
from tools.localcluster.pod_monitors import scrape_configs
from tools.localcluster.processes import Process, free_ports

PORT = 9091
URL = f"http://{ADDRESS}:{PORT}"
USER = User("prometheus")
RIGHTS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
INTERVAL = "2s"
"""Between scrapes, and between evaluations of the rules; 30 s in the chart's monitors."""


def start_prometheus(plane: ControlPlane, program: Path, monitors: Sequence[Object], rules: Path) -> Process:
    """Starts the Prometheus of a cluster; returns when it is ready.

    Args:
        plane: The control plane of the cluster.
        program: Prometheus.
        monitors: PodMonitors, whose pods are scraped.
        rules: A Prometheus rule file.
    """
    grant_cluster_role(plane, USER.name, RIGHTS)
    kubeconfig = plane.kubeconfig_of_user(USER)
    configuration = {
        "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
        "scrape_configs": [config for monitor in monitors for config in scrape_configs(monitor, kubeconfig)],
        "rule_files": [str(rules)],
    }
    (plane.directory / "prometheus.yaml").write_text(json.dumps(configuration))  # JSON is YAML
    process, _ = _start(program, plane.directory, f"{ADDRESS}:{PORT}", data="prometheus")
    return process


def start_prometheus_of_targets(directory: Path, program: Path) -> tuple[Process, str]:
    """Starts a Prometheus on a free loopback port that scrapes the targets of `write_targets`; returns it and its URL.

    Args:
        directory: For its data and its log.
        program: Its binary.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_targets(directory, [])
    return _start(program, directory, f"127.0.0.1:{free_ports(1)[0]}", "--web.enable-lifecycle")


def start_prometheus_of_blocks(directory: Path, program: Path, *, sample_seconds: int) -> tuple[Process, str]:
    """Starts a Prometheus on a free loopback port with existing blocks and no targets; returns it and its URL.

    Args:
        directory: With a folder `data` in which promtool has created blocks of samples, of any age.
        program: Its binary.
        sample_seconds: Between two samples: an older sample is ignored, as after a scrape that lacks it.
    """
    (directory / "prometheus.yaml").write_text("{}")
    kept = ("--storage.tsdb.retention.time=100y", f"--query.lookback-delta={sample_seconds - 1}s")
    return _start(program, directory, f"127.0.0.1:{free_ports(1)[0]}", *kept)


def _start(program: Path, directory: Path, address: str, *flags: str, data: str = "data") -> tuple[Process, str]:
    """Starts a Prometheus with the configuration in a folder; returns it, when it is ready, and its URL."""
    where = (f"--config.file={directory / 'prometheus.yaml'}", f"--storage.tsdb.path={directory / data}")
    command: list[str | Path] = [program, *where, f"--web.listen-address={address}", *flags]
    process = Process("prometheus", command, directory / "prometheus.log")
    process.wait_until_ready("Prometheus", lambda: answers(f"http://{address}/-/ready"))
    return process, f"http://{address}"


def write_targets(directory: Path, targets: Iterable[tuple[str, Mapping[str, str]]], *, url: str | None = None) -> None:
    """Replaces all scrape targets by these addresses with labels, and makes a Prometheus at `url` reload."""
    static = [{"targets": [address], "labels": dict(labels)} for address, labels in targets]
    scrape = {"job_name": "targets", "static_configs": static}
    configuration = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [scrape]}
    (directory / "prometheus.yaml").write_text(json.dumps(configuration))
    if url is not None:
        opened(urllib.request.Request(f"{url}/-/reload", method="POST")).close()  # noqa: S310 - our own address


def query(url: str, expression: str, *, at: float | None = None) -> list[dict]:
    """The result of a query: samples, each with its labels as `metric` and its `value`.

    Args:
        url: Of the Prometheus.
        expression: In PromQL.
        at: Unix time; None: now.
    """
    return _ask(url, "query", query=expression, **({} if at is None else {"time": at}))


def query_range(url: str, expression: str, *, start: float, end: float, step: float) -> list[dict]:
    """The result of a query between two Unix times: series, each with its labels as `metric` and its `values`."""
    return _ask(url, "query_range", query=expression, start=start, end=end, step=step)


def firing(url: str, alert: str) -> list[dict]:
    """The labels of each firing alert with this name."""
    with opened(f"{url}/api/v1/alerts") as answer:
        found = json.load(answer)["data"]["alerts"]
    return [each["labels"] for each in found if each["labels"]["alertname"] == alert and each["state"] == "firing"]


def _ask(url: str, endpoint: str, **parameters: str | float) -> list[dict]:
    with opened(f"{url}/api/v1/{endpoint}?{urllib.parse.urlencode(parameters)}") as answer:
        found: list[dict] = json.load(answer)["data"]["result"]
        return found
