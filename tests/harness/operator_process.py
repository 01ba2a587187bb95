"""The operator as a process of its own, with the rights that it needs and no others."""

import json
import os
import signal
import sys
import urllib.error
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.charts import rendered
from tools.localcluster.api import ApiError
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.kubeconfig import write_kubeconfig
from tools.localcluster.plain_http import opened
from tools.localcluster.processes import Process, free_ports, is_alive
from tools.localcluster.waiting import PATIENCE_SECONDS, wait_for

NAMESPACE = "tpujob-system"
NAME = "tpujob-operator"
USER = f"system:serviceaccount:{NAMESPACE}:{NAME}"

WITHOUT_USERS: Mapping[str, Any] = {"rbac": {"aggregateToUserRoles": False}}
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


def rules() -> list[dict[str, list[str]]]:
    """What the chart lets the operator ask of the API server: what is missing there fails a live test with a 403."""
    [role] = rendered.of_kind("ClusterRole", WITHOUT_USERS)
    found: list[dict[str, list[str]]] = role["rules"]
    return found


def grant_rights(plane: ControlPlane) -> None:
    """Makes the operator's service account with the rights that the chart gives it."""
    try:
        plane.create_namespace(NAMESPACE)
    except ApiError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
    _apply(plane, [found for kind in RIGHTS for found in rendered.of_kind(kind, WITHOUT_USERS)])
    bind_own_writes(plane)


def bind_own_writes(plane: ControlPlane, values: Mapping[str, Any] = {}) -> None:
    """Puts the chart's policy on the operator's own writes in force, as these values make it."""
    _apply(plane, [found for found in rendered.render(values) if found["metadata"]["name"] == f"{NAME}-own-writes"])


def grant_rights_in(plane: ControlPlane, namespace: str) -> str:
    """Makes an account with the rights that the chart gives an operator for one namespace; its name."""
    account = f"{NAME}-{namespace.rpartition('-')[2]}"
    values = {**WITHOUT_USERS, "watchNamespaces": [namespace], "fullnameOverride": account}
    _apply(plane, [found for kind in RIGHTS for found in rendered.of_kind(kind, values)])
    return account


def _apply(plane: ControlPlane, objects: list[dict[str, Any]]) -> None:
    plane.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


class OperatorProcess:
    """An operator that runs within a `with` block, or between `start` and `stop` or `kill`."""

    def __init__(
        self, plane: ControlPlane, directory: Path, *, url: str | None = None, account: str = NAME, **settings: str
    ) -> None:
        """Describes the operator.

        Args:
            plane: Whose jobs it serves.
            directory: For its log and kubeconfig.
            url: Of the API server, where it is not to be reached directly.
            account: The service account that it works as.
            settings: More of its environment.
        """
        self._plane = plane
        self._directory = directory
        self._health_port, self._metrics_port = free_ports(2)
        given = json.loads(plane.kubeconfig_of_service_account(NAMESPACE, account).read_text())
        token = given["users"][0]["user"]["token"]
        directory.mkdir(parents=True, exist_ok=True)
        self.kubeconfig = write_kubeconfig(
            directory / "kubeconfig", url=url or plane.url, ca_file=plane.ca_file, token=token
        )
        self._environment = {
            "KUBECONFIG": str(self.kubeconfig),
            "OPERATOR_HEALTH_PORT": str(self._health_port),
            "OPERATOR_METRICS_PORT": str(self._metrics_port),
            "OPERATOR_REPORT_INTERVAL_SECONDS": "0.5",
            "OPERATOR_PROGRESS_INTERVAL_SECONDS": "0.5",
            **settings,
        }
        self._starts = 0
        self.process: Process | None = None

    def __enter__(self) -> Self:
        """Starts it and waits until it is ready."""
        self.start()
        self.wait_until_ready()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops it."""
        self.stop()

    def start(self) -> None:
        """Starts it; returns at once."""
        self._starts += 1
        log_file = self._directory / f"operator-{self._starts}.log"
        variables = {"HOME": str(self._directory), "PATH": os.environ.get("PATH", os.defpath), **self._environment}
        self.process = Process("operator", [sys.executable, "-m", "tpujob_operator"], log_file, environment=variables)

    def wait_until_ready(self) -> None:
        """Returns when /readyz says so."""
        assert self.process is not None
        self.process.wait_until_ready("the operator to be ready", lambda: self.get("/readyz")[0] == 200)

    def kill(self) -> None:
        """Ends it without warning and waits until it is gone."""
        assert self.process is not None
        self.process.send(signal.SIGKILL)
        self.wait_until_gone()

    def wait_until_gone(self) -> None:
        """Returns when the process has ended."""
        process = self.process
        assert process is not None
        wait_for("the operator to end", lambda: not self.is_running(), explain=process.last_log_lines)
        process.stop()
        self.process = None

    def stop(self) -> None:
        """Ends it as Kubernetes would."""
        if self.process is not None:
            self.process.stop()
            self.process = None

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and is_alive(self.process.pid)

    def log(self) -> str:
        """All that it has logged since its last start."""
        return (self._directory / f"operator-{self._starts}.log").read_text()

    @property
    def metrics_address(self) -> str:
        """Host and port where it serves /metrics."""
        return f"127.0.0.1:{self._metrics_port}"

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of a GET on its health port; status 0 when it does not answer."""
        return _get(self._health_port, path)

    def metrics(self) -> str:
        """What it serves to Prometheus.

        Raises:
            TimeoutError: it does not answer.
        """
        return answered(self._metrics_port, "/metrics", explain=self.log)

    def metric(self, name: str, label: str = "") -> float:
        """The sum of a metric over all its labels, or over those with one such as `method="GET"`.

        Raises:
            TimeoutError: it does not answer.
        """
        lines = [line for line in self.metrics().splitlines() if not line.startswith("#")]
        named = [line for line in lines if line.partition(" ")[0].partition("{")[0] == name and label in line]
        values = [float(line.rpartition(" ")[2]) for line in named]
        return sum(values)


def answered(port: int, path: str, *, explain: Callable[[], str], timeout_seconds: float = PATIENCE_SECONDS) -> str:
    """The body of a GET, once it is answered with success: silence is not a page without metrics.

    Raises:
        TimeoutError: it is not, within the time.
    """

    def body() -> str:
        status, text = _get(port, path)
        return text if status == 200 else ""

    return wait_for(f"{path} of port {port}", body, explain=explain, timeout_seconds=timeout_seconds)


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with opened(f"http://127.0.0.1:{port}{path}", timeout_seconds=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return 0, ""
