"""Kueue beside a control plane: its chart's definitions, rights and webhooks, its process on loopback.

Like JobSet's controller (`jobset.py`), without a Deployment and a Service. Of its webhooks those for Kueue's own
resources, JobSets and Jobs are installed: the others are about kinds that this control plane does not have, and pods.

Kueue reads a certificate for its metrics from a fixed path below /etc, also where it serves none
(`cmd/kueue/main.go`), so its process gets an /etc of its own: Linux, with user namespaces or as root.
"""

import base64
import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from tools.localcluster import binaries
from tools.localcluster.api import ApiError, Object
from tools.localcluster.control_plane import HOST, ControlPlane
from tools.localcluster.plain_http import answers
from tools.localcluster.processes import Process, free_ports
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names

NAMESPACE = "kueue-system"
API_VERSION = "kueue.x-k8s.io/v1beta2"
WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
DEFINITION = "CustomResourceDefinition"
SERVED_GROUPS = ("kueue.x-k8s.io", kubernetes_names.JOBSET_GROUP, "batch")

OWN_ETC = ("/usr/bin/env", "unshare", "--map-root-user", "--mount")
WITH_CERTIFICATES = """
set -e
mount -t tmpfs tmpfs /etc
mkdir -p /etc/kueue/metrics/certs
cp "$1"/* /etc/kueue/metrics/certs
shift
exec "$@"
"""


def can_run_here() -> bool:
    """Whether this machine lets a process have an /etc of its own."""
    try:
        return subprocess.run([*OWN_ETC, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class KueueController:
    """Kueue on a control plane that has the JobSet controller; runs within a `with` block."""

    def __init__(self, plane: ControlPlane) -> None:
        """Describes the controller; nothing is started yet."""
        self._plane = plane
        self._webhook_port, self._health_port = free_ports(2)
        self._process: Process | None = None

    def __enter__(self) -> Self:
        """Returns when queues can be made and the API server calls the webhooks."""
        service_account = self._install()
        kubeconfig = self._plane.kubeconfig_of_service_account(NAMESPACE, service_account)
        config = self._plane.directory / "kueue-config.yaml"
        config.write_text(json.dumps(self._configuration(), indent=2))
        command: list[str | Path] = [
            *OWN_ETC,
            *("sh", "-c", WITH_CERTIFICATES, "kueue", self._plane.directory / "kueue-webhook"),
            binaries.path("kueue"),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            # It would need a certificate for an API of its own, which nobody asks here.
            "--feature-gates=VisibilityOnDemand=false",
        ]
        self._process = Process("kueue", command, self._plane.directory / "kueue.log")
        try:
            self._process.wait_until_ready(
                "a ready Kueue", lambda: answers(f"http://{HOST}:{self._health_port}/readyz")
            )
            wait_for(
                "the API server to call Kueue's webhooks",
                self._are_webhooks_called,
                explain=self._process.last_log_lines,
            )
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the process; its webhook configurations stay, so the control plane is of no further use."""
        assert self._process is not None
        self._process.stop()

    def _install(self) -> str:
        """Applies the chart without its workload; returns the controller's service account."""
        rendered = self._plane.run_tool(
            "helm", "template", "kueue", binaries.files("kueue"), f"--namespace={NAMESPACE}"
        )
        objects: list[Object] = [manifest for manifest in yaml.safe_load_all(rendered) if manifest]
        (deployment,) = (manifest for manifest in objects if manifest["kind"] == "Deployment")
        definitions = [manifest for manifest in objects if manifest["kind"] == DEFINITION]
        installed = [manifest for manifest in objects if manifest["kind"] in (*RIGHTS, *WEBHOOK_KINDS)]
        for definition in definitions:
            conversion = definition["spec"].get("conversion")
            if conversion is not None:
                conversion["webhook"]["clientConfig"] = self._client_config("/convert")
        for configuration in installed:
            if configuration["kind"] in WEBHOOK_KINDS:
                configuration["webhooks"] = [w for w in configuration["webhooks"] if _is_served(w)]
                for webhook in configuration["webhooks"]:
                    webhook["clientConfig"] = self._client_config(webhook["clientConfig"]["service"]["path"])
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self._apply([namespace, *definitions])
        self._apply(installed)
        name: str = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        return name

    def _apply(self, objects: list[Object]) -> None:
        self._plane.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump_all(objects))

    def _client_config(self, path: str) -> Object:
        ca_bundle = base64.b64encode(self._plane.ca_file.read_bytes()).decode()
        return {"url": f"https://{HOST}:{self._webhook_port}{path}", "caBundle": ca_bundle}

    def _configuration(self) -> Object:
        """Kueue's configuration file: `apis/config/v1beta2/configuration_types.go` in its module."""
        certificates = self._plane.directory / "kueue-webhook"
        certificates.mkdir(mode=0o700, exist_ok=True)
        self._plane.authority.issue(certificates / "tls.crt", certificates / "tls.key", dns_names=[], addresses=[HOST])
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": HOST, "port": self._webhook_port, "certDir": str(certificates)},
            "health": {"healthProbeBindAddress": f"{HOST}:{self._health_port}"},
            "metrics": {"bindAddress": "0"},
            "integrations": {"frameworks": ["jobset.x-k8s.io/jobset"]},
        }

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
