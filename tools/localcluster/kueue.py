"""Kueue for a control plane: the CRDs, RBAC and webhooks of its chart, and its process on loopback.

Like JobSet's controller (`jobset.py`), it has no Deployment and no Service. Only its webhooks for Kueue's own
resources, JobSets and Jobs are installed: the others are for pods, and for kinds that this control plane does not have.

Kueue reads certificates from fixed paths (`cmd/kueue/main.go`, `pkg/visibility/server.go`), and serves the order of its
queues on port 8082 of all addresses. So its process gets its own root directory and its own network. This needs Linux,
with user namespaces or as root.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from tools.localcluster import binaries, own_network
from tools.localcluster.api import ApiError, Object
from tools.localcluster.control_plane import HOST, ControlPlane
from tools.localcluster.jobset import RIGHTS, WEBHOOK_KINDS, client_config, of_chart, point_webhooks_here
from tools.localcluster.plain_http import answers
from tools.localcluster.processes import Process, free_ports
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names

NAMESPACE = "kueue-system"
API_VERSION = "kueue.x-k8s.io/v1beta2"
DEFINITION = "CustomResourceDefinition"
EXTENSION = "APIService"
SERVED_GROUPS = ("kueue.x-k8s.io", kubernetes_names.JOBSET_GROUP, "batch")

VISIBILITY_GROUP = "visibility.kueue.x-k8s.io"
VISIBILITY_PORT = 8082
"""Fixed in `pkg/visibility/server.go`."""
CERTIFICATE_FOLDERS = ("webhook", "etc/kueue/metrics/certs", "visibility")
SERVICE_ACCOUNT = "var/run/secrets/kubernetes.io/serviceaccount"

OWN_NAMESPACES = ("/usr/bin/env", "unshare", "--map-root-user", "--mount")
WITH_PROGRAM = """
set -e
touch "$1/kueue"
mount --bind "$2" "$1/kueue"
shift 2
exec "$@"
"""


def can_run_here() -> bool:
    """Whether this machine lets a process have its own mounts and its own network."""
    try:
        return subprocess.run([*OWN_NAMESPACES, "--net", "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class KueueController:
    """Kueue on a control plane that has the JobSet controller; runs within a `with` block."""

    def __init__(
        self, plane: ControlPlane, *, workers: Sequence[ControlPlane] = (), configuration: Object | None = None
    ) -> None:
        """Chooses its ports; nothing is started yet.

        Args:
            plane: The control plane that it serves.
            workers: Other control planes that it calls, for MultiKueue.
            configuration: Additional fields of its configuration file.
        """
        self._plane = plane
        self._workers = tuple(workers)
        self._more = configuration or {}
        self._webhook_port, self._health_port, self._visibility_port = free_ports(3)
        self._root = plane.directory / "kueue-root"
        self._process: Process | None = None

    def __enter__(self) -> Self:
        """Starts Kueue; returns when queues can be created and the API server calls the webhooks."""
        service_account = self._install()
        self._prepare_root(service_account)
        served = {port: port for port in (self._webhook_port, self._health_port)} | {
            VISIBILITY_PORT: self._visibility_port
        }
        command: list[str | Path] = [
            *OWN_NAMESPACES,
            *("sh", "-c", WITH_PROGRAM, "kueue", self._root, binaries.path("kueue")),
            *(sys.executable, own_network.__file__),
            *(f"--serves={inner}:{outer}" for inner, outer in served.items()),
            *(f"--calls={plane.port}" for plane in (self._plane, *self._workers)),
            "--",
            *("/usr/bin/env", "chroot", self._root, "/kueue", "--config=/config.yaml", "--kubeconfig=/kubeconfig"),
        ]
        environment = {
            "HOME": "/",
            "PATH": os.environ.get("PATH", os.defpath),
            # Its extension API server for the order of queues finds the API server only by these variables, as in pods.
            "KUBERNETES_SERVICE_HOST": HOST,
            "KUBERNETES_SERVICE_PORT": str(self._plane.port),
        }
        log = self._plane.directory / "kueue.log"
        self._process = Process("kueue", command, log, environment=environment)
        try:
            self._process.wait_until_ready(
                "a ready Kueue", lambda: answers(f"http://{HOST}:{self._health_port}/readyz")
            )
            wait_for(
                "the API server to call Kueue's webhooks",
                self._are_webhooks_called,
                explain=self._process.last_log_lines,
            )
            wait_for(
                "the API server to pass on who asks for the order of queues",
                self._is_order_served,
                explain=self._process.last_log_lines,
            )
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the process; its webhook configurations stay, so the control plane cannot be used any more."""
        assert self._process is not None
        self._process.stop()

    def _install(self) -> str:
        """Applies the chart without its workload; returns the controller's service account."""
        (namespace, *objects), service_account = of_chart("kueue", NAMESPACE, self._plane)
        definitions = [manifest for manifest in objects if manifest["kind"] == DEFINITION]
        installed = [m for m in objects if m["kind"] in (*RIGHTS, *WEBHOOK_KINDS, EXTENSION)]
        for definition in definitions:
            conversion = definition["spec"].get("conversion")
            if conversion is not None:
                conversion["webhook"]["clientConfig"] = client_config(self._plane, self._webhook_port, "/convert")
        for configuration in installed:
            if configuration["kind"] in WEBHOOK_KINDS:
                configuration["webhooks"] = [w for w in configuration["webhooks"] if _is_served(w)]
        point_webhooks_here(installed, self._plane, self._webhook_port)
        services = [self._visibility_service(m) for m in installed if m["kind"] == EXTENSION]
        self._apply([namespace, *definitions])
        wait_for("the API server to serve Kueue's resources", self._are_resources_served)
        self._apply([*services[:1], *installed])
        return service_account

    def _apply(self, objects: list[Object]) -> None:
        self._plane.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump_all(objects))

    def _visibility_service(self, extension: Object) -> Object:
        """Sets the port of an APIService; returns its Service, an ExternalName, as endpoints may not be on loopback."""
        service = extension["spec"]["service"]
        service["port"] = self._visibility_port
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": service["name"], "namespace": service["namespace"]},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }

    def _prepare_root(self, service_account: str) -> None:
        """Writes all files that Kueue reads to the paths at which it expects them."""
        kubeconfig = self._plane.kubeconfig_of_service_account(NAMESPACE, service_account).read_text()
        for folder in CERTIFICATE_FOLDERS:
            (self._root / folder).mkdir(mode=0o700, parents=True)
            files = (self._root / folder / "tls.crt", self._root / folder / "tls.key")
            self._plane.authority.issue(*files, dns_names=["localhost"], addresses=[HOST])
        account = self._root / SERVICE_ACCOUNT
        account.mkdir(parents=True)
        (account / "token").write_text(json.loads(kubeconfig)["users"][0]["user"]["token"])
        (account / "ca.crt").write_bytes(self._plane.ca_file.read_bytes())
        (self._root / "tmp").mkdir()
        (self._root / "kubeconfig").write_text(kubeconfig)
        (self._root / "config.yaml").write_text(json.dumps(self._configuration(), indent=2))

    def _configuration(self) -> Object:
        """Kueue's configuration, as `apis/config/v1beta2/configuration_types.go` in its module defines it."""
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": HOST, "port": self._webhook_port, "certDir": "/webhook"},
            "health": {"healthProbeBindAddress": f"{HOST}:{self._health_port}"},
            "metrics": {"bindAddress": "0"},
            "integrations": {"frameworks": ["jobset.x-k8s.io/jobset"]},
            **self._more,
        }

    def _are_resources_served(self) -> bool:
        """Whether Kueue's resources are served: it looks for them once, at its start, and exits if they are missing."""
        return "workloads" in self._served(API_VERSION)

    def _served(self, api_version: str) -> list[str]:
        """The names of the resources of an API group and version; empty: it is not served, or not yet."""
        try:
            return [each["name"] for each in self._plane.api.get(f"/apis/{api_version}")["resources"]]
        except ApiError as error:
            if error.status in (404, 503):
                return []
            raise

    def _is_order_served(self) -> bool:
        return bool(self._served(f"{VISIBILITY_GROUP}/v1beta2"))

    def _are_webhooks_called(self) -> bool:
        flavor = {"apiVersion": API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "webhook-probe"}}
        path = f"/apis/{API_VERSION}/resourceflavors?dryRun=All"
        try:
            self._plane.api.create(path, flavor)
        except ApiError as error:
            if "failed calling webhook" in error.message or error.status == 404:
                return False
            raise
        return True


def _is_served(webhook: Object) -> bool:
    return all(set(rule["apiGroups"]) <= set(SERVED_GROUPS) for rule in webhook["rules"])
