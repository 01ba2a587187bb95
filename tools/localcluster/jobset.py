"""The JobSet controller for a control plane: the RBAC and webhooks of its chart, and its process on loopback.

The chart creates a Deployment behind a Service; without nodes, neither works. So the process runs on this machine, as
the chart's service account, and the webhook configurations contain its address instead of the Service.
"""

import base64
import json
from collections.abc import Iterable
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

NAMESPACE = "jobset-system"
WEBHOOK_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
INSTALLED_KINDS = ("Namespace", *RIGHTS, *WEBHOOK_KINDS)
POD_SPEC: Object = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}


def jobset_custom_resources() -> Path:
    """The folder of JobSet's CustomResourceDefinitions, for `ControlPlane(custom_resources=...)`."""
    return binaries.files("jobset") / "crds"


class JobSetController:
    """The JobSet controller of a control plane that has JobSet's custom resources."""

    def __init__(self, plane: ControlPlane) -> None:
        """Chooses its ports; nothing is started yet."""
        self._plane = plane
        self._webhook_port, self._health_port = free_ports(2)
        self._process: Process | None = None

    def __enter__(self) -> Self:
        """Starts the controller."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the controller."""
        self.stop()

    def start(self) -> None:
        """Starts the controller; returns when JobSets are reconciled and the API server calls the webhooks."""
        service_account = self._install()
        kubeconfig = self._plane.kubeconfig_of_service_account(NAMESPACE, service_account)
        config = self._plane.directory / "jobset-config.yaml"
        config.write_text(json.dumps(self._configuration(), indent=2))
        command: list[str | Path] = [binaries.path("jobset"), f"--config={config}", f"--kubeconfig={kubeconfig}"]
        self._process = Process("jobset", command, self._plane.directory / "jobset.log")
        try:
            self._process.wait_until_ready("a ready JobSet controller", self._is_ready)
            wait_for(
                "the API server to call JobSet's webhooks",
                self._are_webhooks_called,
                explain=self._process.last_log_lines,
            )
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the process; the objects it created and its webhook configurations stay."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    @property
    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [self._process.pid] if self._process is not None else []

    def _install(self) -> str:
        """Applies the chart without its workload; returns the controller's service account."""
        objects, service_account = of_chart("jobset", NAMESPACE, self._plane)
        installed = [manifest for manifest in objects if manifest["kind"] in INSTALLED_KINDS]
        point_webhooks_here(installed, self._plane, self._webhook_port)
        self._plane.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump_all(installed))
        return service_account

    def _configuration(self) -> Object:
        """JobSet's configuration, as `api/config/v1alpha1/configuration_types.go` in its module defines it."""
        certificates = self._plane.directory / "jobset-webhook"
        certificates.mkdir(mode=0o700, exist_ok=True)
        self._plane.authority.issue(certificates / "tls.crt", certificates / "tls.key", dns_names=[], addresses=[HOST])
        return {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": HOST, "port": self._webhook_port, "certDir": str(certificates)},
            "health": {"healthProbeBindAddress": f"{HOST}:{self._health_port}"},
            "metrics": {"bindAddress": "0"},
        }

    def _is_ready(self) -> bool:
        return answers(f"http://{HOST}:{self._health_port}/readyz")

    def _are_webhooks_called(self) -> bool:
        """Whether the API server calls all webhooks.

        It reads their configurations shortly after it has stored them, and the controller reports that it is ready
        shortly before it serves the last of their paths.
        """
        api = self._plane.api
        jobsets = f"/apis/{kubernetes_names.JOBSET_API_VERSION}/namespaces/default/jobsets?dryRun=All"
        labels = {kubernetes_names.JOBSET_NAME: "webhook-probe"}
        try:
            defaulted = api.create(jobsets, _jobset("webhook-probe"))
            api.create("/api/v1/namespaces/default/pods?dryRun=All", _pod("webhook-probe", labels))
            # A name that is too long for its pods' names: the webhook rejects it, but the schema does not.
            api.create(jobsets, _jobset("a" * 63))
        except ApiError as error:
            if "failed calling webhook" in error.message:
                return False
            if "denied the request" in error.message:
                return "successPolicy" in defaulted["spec"]
            raise
        return False


def of_chart(chart: str, namespace: str, plane: ControlPlane) -> tuple[list[Object], str]:
    """The objects of a controller's chart, its Namespace at the head, and the name of its service account."""
    rendered = plane.run_tool("helm", "template", chart, binaries.files(chart), f"--namespace={namespace}")
    objects: list[Object] = [manifest for manifest in yaml.safe_load_all(rendered) if manifest]
    (deployment,) = (manifest for manifest in objects if manifest["kind"] == "Deployment")
    first = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    return [first, *objects], deployment["spec"]["template"]["spec"]["serviceAccountName"]


def point_webhooks_here(manifests: Iterable[Object], plane: ControlPlane, port: int) -> None:
    """Replaces the Services in webhook configurations by the address of a process on loopback."""
    for manifest in manifests:
        if manifest["kind"] in WEBHOOK_KINDS:
            for webhook in manifest["webhooks"]:
                webhook["clientConfig"] = client_config(plane, port, webhook["clientConfig"]["service"]["path"])


def client_config(plane: ControlPlane, port: int, path: str) -> Object:
    """How the API server calls a webhook of a process on loopback."""
    ca_bundle = base64.b64encode(plane.ca_file.read_bytes()).decode()
    return {"url": f"https://{HOST}:{port}{path}", "caBundle": ca_bundle}


def _jobset(name: str) -> Object:
    job = {"template": {"spec": {"template": {"spec": POD_SPEC}}}, "name": "w"}
    return {
        "apiVersion": kubernetes_names.JOBSET_API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [job]},
    }


def _pod(name: str, labels: dict[str, str]) -> Object:
    return {"metadata": {"name": name, "labels": labels}, "spec": POD_SPEC}
