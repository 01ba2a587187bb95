"""Kubeflow Trainer on a control plane with the JobSet controller: its manifests, and its process on loopback.

Its manifests are for a cluster, with a Deployment and a Service. Here the process runs outside the cluster, with its
service account and the configuration of its manifests, except: addresses; leader election, which a single process does
not need; and certificates, which are provided.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tools.localcluster import binaries
from tools.localcluster.api import ApiError
from tools.localcluster.control_plane import HOST, ControlPlane
from tools.localcluster.jobset import point_webhooks_here
from tools.localcluster.plain_http import answers
from tools.localcluster.processes import Process, free_ports
from tools.localcluster.waiting import wait_for

NAMESPACE = "kubeflow-system"
NAME = "kubeflow-trainer-controller-manager"
API_VERSION = "trainer.kubeflow.org/v1alpha1"
RUNTIME = "jax-distributed"
WITHOUT_JOBSET = "# Comment this line if JobSet is installed"
"""The comment in the manifests on the line that also installs JobSet."""
LEFT_OUT = ("Deployment", "Service", "CustomResourceDefinition")


def custom_resources() -> list[Path]:
    """The files of its CustomResourceDefinitions, for `ControlPlane(custom_resources=...)`."""
    return sorted((binaries.files("kubeflow-trainer") / "base" / "crds").glob("trainer.kubeflow.org_*.yaml"))


@contextmanager
def controller(plane: ControlPlane) -> Iterator[int]:
    """Runs the controller for the block, which starts when a job can be created; yields the process id."""
    webhook, health = free_ports(2)
    configuration = _install(plane, webhook)
    folder = plane.directory / "kubeflow"
    certificates = folder / "k8s-webhook-server" / "serving-certs"
    certificates.mkdir(parents=True)
    plane.authority.issue(certificates / "tls.crt", certificates / "tls.key", dns_names=[], addresses=[HOST])
    configuration |= {
        "webhook": {"host": HOST, "port": webhook},
        "health": {**configuration["health"], "healthProbeBindAddress": f"{HOST}:{health}"},
        "metrics": {"bindAddress": "0"},
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
    }
    config = folder / "config.yaml"
    config.write_text(json.dumps(configuration))
    # It reads its certificates from a subfolder of the folder for temporary files.
    environment = {"KUBECONFIG": str(plane.kubeconfig_of_service_account(NAMESPACE, NAME)), "TMPDIR": str(folder)}
    command: list[str | Path] = [binaries.path("kubeflow-trainer"), f"--config={config}"]
    process = Process("kubeflow-trainer", command, folder / "log", environment=environment)
    try:
        process.wait_until_ready("a ready Kubeflow Trainer", lambda: answers(f"http://{HOST}:{health}/readyz"))
        wait_for("the API server to call its webhooks", lambda: _has_runtime(plane), explain=process.last_log_lines)
        yield process.pid
    finally:
        process.stop()


def create(plane: ControlPlane, name: str, *, namespace: str) -> None:
    """Creates a suspended job of two processes."""
    spec = {
        "runtimeRef": {"name": RUNTIME},
        "suspend": True,
        "trainer": {"image": "example.com/image", "command": ["train"], "numNodes": 2},
    }
    path = f"/apis/{API_VERSION}/namespaces/{namespace}/trainjobs"
    plane.api.create(path, {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": {"name": name}, "spec": spec})


def _install(plane: ControlPlane, webhook_port: int) -> dict[str, Any]:
    """Applies its manifests without the workload; returns the configuration in them."""
    manifests = plane.directory / "kubeflow-manifests"
    shutil.copytree(binaries.files("kubeflow-trainer"), manifests)
    overlay = manifests / "overlays" / "manager" / "kustomization.yaml"
    lines = overlay.read_text().splitlines()
    overlay.write_text("\n".join(line for line in lines if WITHOUT_JOBSET not in line))
    objects = list(yaml.safe_load_all(plane.kubectl("kustomize", overlay.parent)))
    (configuration,) = (
        content
        for manifest in objects
        if manifest["kind"] == "ConfigMap"
        for name, content in manifest["data"].items()
        if name == "controller_manager_config.yaml"
    )
    installed = [manifest for manifest in objects if manifest["kind"] not in LEFT_OUT]
    point_webhooks_here(installed, plane, webhook_port)
    plane.kubectl("apply", "--server-side", "--filename=-", stdin=yaml.safe_dump_all(installed))
    loaded: dict[str, Any] = yaml.safe_load(configuration)
    return loaded


def _has_runtime(plane: ControlPlane) -> bool:
    """Creates the runtime of the jobs; returns whether its webhook answered."""
    runtime = binaries.files("kubeflow-trainer") / "base" / "runtimes" / "jax_distributed.yaml"
    try:
        plane.api.create(f"/apis/{API_VERSION}/clustertrainingruntimes", yaml.safe_load(runtime.read_text()))
    except ApiError as error:
        if "failed calling webhook" in error.message:
            return False
        raise
    return True
