"""Nodes: kubelets like those of a GKE TPU node pool, and the scheduler that assigns pods to them."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from tools.localcluster.api import Api, Object
from tools.localcluster.containerd import Containerd
from tools.localcluster.control_plane import HOST, ControlPlane, User
from tools.localcluster.kubeconfig import write_kubeconfig
from tools.localcluster.network import ADDRESS
from tools.localcluster.processes import Process, free_ports
from tools.localcluster.undo import CONTROL_GROUPS, Journal
from tools.localcluster.waiting import wait_for

PROCESSES = 8
"""The CPU weight of all pods together on a busy machine, in processes: roughly as many as run at a time."""
TPU_RESOURCE = "google.com/tpu"
CHIPS = 16
"""The chips of a v5e-16 slice, so that all its four hosts fit on this node."""

# The labels of a GKE TPU node pool: https://cloud.google.com/kubernetes-engine/docs/concepts/tpus
LABELS = {
    "cloud.google.com/gke-nodepool": "tpu-v5e-16",
    "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
    "cloud.google.com/gke-tpu-topology": "4x4",
}


@dataclass(frozen=True)
class Node:
    """A node of the cluster; its kubelet writes to a folder with the node's name."""

    name: str
    control_group: str
    """All its pods run below it, so that they can be found at the end."""

    @property
    def user_name(self) -> str:
        """The user name of its kubelet in the API."""
        return f"system:node:{self.name}"

    def user(self) -> User:
        """The user of its kubelet, with a new token."""
        return User(self.user_name, ("system:nodes",))


FIRST = Node("tpu-node-0", "tpujob-test")
SECOND = Node("tpu-node-1", "tpujob-test-1")
SCHEDULER = User("system:kube-scheduler")


def start_scheduler(plane: ControlPlane, program: Path) -> Process:
    """Starts the scheduler; does not wait until it is ready."""
    (port,) = free_ports(1)
    kubeconfig = plane.kubeconfig_of_user(SCHEDULER)
    flags = {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "bind-address": HOST,
        "secure-port": port,
        "cert-dir": plane.directory / "scheduler",
        "leader-elect": "false",
    }
    command: list[str | Path] = [program, *(f"--{flag}={value}" for flag, value in flags.items())]
    return Process("kube-scheduler", command, plane.directory / "kube-scheduler.log")


def admit(plane: ControlPlane, node: Node, token: str) -> None:
    """Writes the files by which a node's kubelet and the API server authenticate each other."""
    directory = plane.directory / node.name
    directory.mkdir(exist_ok=True)
    shutil.copy(plane.ca_file, directory / "ca.crt")
    plane.authority.issue(
        directory / "kubelet.crt", directory / "kubelet.key", dns_names=[node.name], addresses=[ADDRESS]
    )
    write_kubeconfig(directory / "kubeconfig", url=plane.url, ca_file=plane.ca_file, token=token)


def start_kubelet(
    node: Node, cluster: Path, api: Api, program: Path, containerd: Containerd, journal: Journal
) -> Process:
    """Starts the kubelet of an admitted node; returns when the node is ready and has its chips.

    Args:
        node: Of the kubelet.
        cluster: The folder of the cluster.
        api: With administrator rights.
        program: The kubelet.
        containerd: For this node alone: a kubelet deletes containers that it does not know.
        journal: Records the changes to this machine.
    """
    directory = cluster / node.name
    _make_control_group(node.control_group, journal)
    configuration = directory / "config.json"
    configuration.write_text(json.dumps(_configuration(node, directory, containerd), indent=2))
    flags = {
        "config": configuration,
        "kubeconfig": directory / "kubeconfig",
        "root-dir": directory / "root",
        "cert-dir": directory,
        "hostname-override": node.name,
        "node-ip": ADDRESS,
        "node-labels": ",".join(f"{key}={value}" for key, value in LABELS.items()),
    }
    command: list[str | Path] = [program, *(f"--{flag}={value}" for flag, value in flags.items())]
    process = Process("kubelet", command, directory / "kubelet.log")
    process.wait_until_ready("a ready node", lambda: is_ready(api, node.name))
    # As a device plugin would; the kubelet does not touch resources that it does not know. It would set what is
    # allocatable by itself, but only ten seconds later.
    chips = {TPU_RESOURCE: str(CHIPS)}
    api.patch(f"/api/v1/nodes/{node.name}/status", {"status": {"capacity": chips, "allocatable": chips}})
    wait_for("the node to offer its chips", lambda: TPU_RESOURCE in _node_status(api, node.name).get("allocatable", {}))
    return process


def _make_control_group(name: str, journal: Journal) -> None:
    journal.note("control group", name=name)
    is_unified = (CONTROL_GROUPS / "cgroup.controllers").exists()
    hierarchies = [CONTROL_GROUPS] if is_unified else [path for path in CONTROL_GROUPS.iterdir() if path.is_dir()]
    for hierarchy in hierarchies:
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        # By default, a group gets the CPU time of one process; this one has the processes of several jobs.
        for file, usual in (("cpu.shares", 1024), ("cpu.weight", 100)):
            if (group / file).exists():
                (group / file).write_text(str(usual * PROCESSES))


def is_ready(api: Api, name: str) -> bool:
    """Whether a node's Ready condition is true."""
    conditions = _node_status(api, name).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _node_status(api: Api, name: str) -> Object:
    for node in api.items("/api/v1/nodes"):
        if node["metadata"]["name"] == name:
            status: Object = node["status"]
            return status
    return {}


def _configuration(node: Node, directory: Path, containerd: Containerd) -> dict[str, object]:
    """A KubeletConfiguration: https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/."""
    (port,) = free_ports(1)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(directory / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(directory / "kubelet.crt"),
        "tlsPrivateKeyFile": str(directory / "kubelet.key"),
        "containerRuntimeEndpoint": f"unix://{containerd.socket}",
        "podLogsDir": str(directory / "pods"),
        "volumePluginDir": str(directory / "volume-plugins"),
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        # For machines without systemd, and perhaps with cgroup v1, swap, or little free disk space.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.control_group}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,  # nothing uses these packet rules, or would remove them
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
    }
