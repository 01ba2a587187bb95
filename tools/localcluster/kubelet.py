"""The one node: a kubelet that looks like a GKE TPU node pool, and the scheduler that sends pods to it."""

import json
from pathlib import Path

from tools.localcluster.containerd import Containerd
from tools.localcluster.control_plane import HOST, ControlPlane, User
from tools.localcluster.network import ADDRESS
from tools.localcluster.processes import Process, free_ports
from tools.localcluster.undo import CONTROL_GROUPS, Journal
from tools.localcluster.waiting import wait_for

NAME = "tpu-node-0"
CONTROL_GROUP = "tpujob-test"
PROCESSES = 8
"""As many as run at a time, roughly: how much of a busy machine all pods together may have."""
TPU_RESOURCE = "google.com/tpu"
CHIPS = 16
"""Of a v5e-16 slice, so that all four hosts of one fit on this node."""

# The labels of a GKE TPU node pool: https://cloud.google.com/kubernetes-engine/docs/concepts/tpus
LABELS = {
    "cloud.google.com/gke-nodepool": "tpu-v5e-16",
    "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
    "cloud.google.com/gke-tpu-topology": "4x4",
}
KUBELET = User(f"system:node:{NAME}", ("system:nodes",))
SCHEDULER = User("system:kube-scheduler")


def start_scheduler(plane: ControlPlane, program: Path) -> Process:
    """Starts the scheduler; it is ready when pods are scheduled."""
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


def start_kubelet(plane: ControlPlane, program: Path, containerd: Containerd, journal: Journal) -> Process:
    """Returns when the node is ready and has its chips."""
    directory = plane.directory / "kubelet"
    directory.mkdir(exist_ok=True)
    _make_control_group(journal)
    certificate, key = directory / "kubelet.crt", directory / "kubelet.key"
    plane.authority.issue(certificate, key, dns_names=[NAME], addresses=[ADDRESS])
    configuration = directory / "config.json"
    configuration.write_text(json.dumps(_configuration(plane, containerd, certificate, key), indent=2))
    flags = {
        "config": configuration,
        "kubeconfig": plane.kubeconfig_of_user(KUBELET),
        "root-dir": directory / "root",
        "cert-dir": directory,
        "hostname-override": NAME,
        "node-ip": ADDRESS,
        "node-labels": ",".join(f"{key}={value}" for key, value in LABELS.items()),
    }
    command: list[str | Path] = [program, *(f"--{flag}={value}" for flag, value in flags.items())]
    process = Process("kubelet", command, plane.directory / "kubelet.log")
    process.wait_until_ready("a ready node", lambda: _is_ready(plane))
    # What a device plugin would announce; the kubelet leaves resources that it does not know alone. It would find out
    # what pods may have of them by itself, but only ten seconds later.
    chips = {TPU_RESOURCE: str(CHIPS)}
    plane.api.patch(f"/api/v1/nodes/{NAME}/status", {"status": {"capacity": chips, "allocatable": chips}})
    wait_for("the node to offer its chips", lambda: TPU_RESOURCE in _node_status(plane).get("allocatable", {}))
    return process


def _make_control_group(journal: Journal) -> None:
    """All pods live below a control group of their own, by which they are found at the end."""
    journal.note("control group", name=CONTROL_GROUP)
    is_unified = (CONTROL_GROUPS / "cgroup.controllers").exists()
    hierarchies = [CONTROL_GROUPS] if is_unified else [path for path in CONTROL_GROUPS.iterdir() if path.is_dir()]
    for hierarchy in hierarchies:
        group = hierarchy / CONTROL_GROUP
        group.mkdir(exist_ok=True)
        # A group counts as one process beside all others of the machine; this one has those of several jobs.
        for name, usual in (("cpu.shares", 1024), ("cpu.weight", 100)):
            if (group / name).exists():
                (group / name).write_text(str(usual * PROCESSES))


def _is_ready(plane: ControlPlane) -> bool:
    conditions = _node_status(plane).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _node_status(plane: ControlPlane) -> dict:
    for node in plane.api.items("/api/v1/nodes"):
        if node["metadata"]["name"] == NAME:
            return node["status"]
    return {}


def _configuration(plane: ControlPlane, containerd: Containerd, certificate: Path, key: Path) -> dict[str, object]:
    """https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/."""
    (port,) = free_ports(1)
    directory = plane.directory / "kubelet"
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
            "x509": {"clientCAFile": str(plane.ca_file)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(certificate),
        "tlsPrivateKeyFile": str(key),
        "containerRuntimeEndpoint": f"unix://{containerd.socket}",
        "podLogsDir": str(plane.directory / "pods"),
        "volumePluginDir": str(directory / "volume-plugins"),
        "clusterDNS": [ADDRESS],
        "clusterDomain": "cluster.local",
        # A machine without systemd, perhaps with the old kind of control groups, with swap, and with little disk left.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CONTROL_GROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": False,  # nobody uses these packet rules, and nobody would remove them
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
        },
    }
