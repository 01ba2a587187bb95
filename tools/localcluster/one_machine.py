"""A whole Kubernetes on this machine: control plane, one real node, names, storage, Prometheus, JobSet, our operator.

The process that calls `start` is the parent of all its processes, and they end with it. Its other changes to the
machine (containers, mounts, the bridge, packet rules) are in the journal, and `end` undoes them, from any process and
in any state of the cluster.
"""

import fcntl
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.localcluster import binaries, kept, network, product_images
from tools.localcluster.client import Client
from tools.localcluster.containerd import Containerd
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import NAMESPACE as JOBSET_NAMESPACE
from tools.localcluster.jobset import jobset_custom_resources
from tools.localcluster.kubelet import FIRST, SCHEDULER, SECOND, admit, start_kubelet, start_scheduler
from tools.localcluster.names import USER as NAME_SERVER
from tools.localcluster.names import start_name_server
from tools.localcluster.network import ADDRESS, NETWORK
from tools.localcluster.node_images import JOBSET_IMAGE, NodeImages, add_system_images
from tools.localcluster.processes import Process
from tools.localcluster.product import RULES, deploy, pod_monitors
from tools.localcluster.prometheus import USER as PROMETHEUS
from tools.localcluster.prometheus import start_prometheus
from tools.localcluster.storage import start_storage
from tools.localcluster.undo import Journal, end_process, start_time, undo

IMAGES = kept.FOLDER / "node"
"""The node's images, which are kept for the next cluster."""
JOBSET_SECONDS = 120
REVIVAL_SECONDS = 1
"""Between checks for programs of the control plane that have exited."""


class OneMachine:
    """A cluster with one node; all its files are in its directory, except the images that it keeps."""

    def __init__(self, directory: Path, announce: Callable[[str], object]) -> None:
        """Prepares a cluster; nothing is written or started yet.

        Args:
            directory: Created if it does not exist. Keep its path short: paths of the sockets in it have a limit of
                107 characters.
            announce: Called with a line after each step.
        """
        self.directory = directory.absolute()
        self.journal = journal_of(directory)
        self._kubelets = {node: node.user() for node in (FIRST, SECOND)}
        self.plane = ControlPlane(
            directory,
            users=[*self._kubelets.values(), SCHEDULER, NAME_SERVER, PROMETHEUS],
            custom_resources=[jobset_custom_resources()],
            host=ADDRESS,
            calls_nodes=True,
        )
        self.containerd = _containerd(self.directory)
        self.images = NodeImages(self.containerd, IMAGES)
        self._announce = announce
        self._began = time.monotonic()
        self._processes: list[Process] = []

    def start(self) -> None:
        """Starts the cluster; returns when the node is ready, and JobSet and our operator run on it."""
        programs = {name: binaries.path(name) for name in binaries.NODE}
        self.directory.mkdir(parents=True, exist_ok=True)
        self.journal.note("process", pid=str(os.getpid()), started=start_time(os.getpid()))
        self.journal.note_fixed_places(NETWORK)
        self._end_abandoned()
        self._sign_of_life = network.make_bridge(self.journal, self.directory)
        self.plane.start()
        network.lead_to_api_server(self.journal, self.plane.port)
        self._say("the control plane is ready")
        # Before the node starts, so that its pod starts as soon as the node is ready.
        self._install_jobset()
        self._start_containerd()
        self._processes.append(start_storage(self.directory, programs["fake-gcs-server"]))
        self._processes.append(start_name_server(self.plane, programs["coredns"]))
        self._processes.append(start_prometheus(self.plane, programs["prometheus"], pod_monitors(), RULES))
        self._processes.append(start_scheduler(self.plane, programs["kube-scheduler"]))
        for node, user in self._kubelets.items():
            admit(self.plane, node, user.token)
        self._processes.append(self._start_kubelet(programs["kubelet"]))
        self._say("the node is ready")
        deploy(self.images, Client(self.plane.kubeconfig), self._say)
        self._wait_for_jobset()
        self._say("JobSet is ready")

    def run(self) -> None:
        """Keeps the control plane up; never returns."""
        while True:
            self.plane.revive()
            time.sleep(REVIVAL_SECONDS)

    def stop_processes(self) -> None:
        """Ends the processes of this cluster, the node's first; `end` removes the containers and the rest."""
        while self._processes:
            self._processes.pop().stop()
        self.plane.stop()

    def _end_abandoned(self) -> None:
        """Removes what a cluster with another directory left when its process was killed."""
        directory = network.abandoned()
        if directory is None:
            return
        self._say(f"removing what a cluster left that ended by force: {directory}")
        if journal_of(directory).file.exists():
            end(directory)
        network.remove_abandoned()

    def _start_containerd(self) -> None:
        network.write_plugin_configuration(self.containerd.network_configurations, self.directory / "addresses")
        self._processes.append(self.containerd.start_without_containers(self.journal))
        add_system_images(self.images)
        self._say("containerd has its images")

    def _start_kubelet(self, program: Path) -> Process:
        return start_kubelet(FIRST, self.directory, self.plane.api, program, self.containerd, self.journal)

    def _install_jobset(self) -> None:
        values = {
            "image.repository": JOBSET_IMAGE,
            "image.tag": binaries.PROGRAMS["jobset"].version,
            "image.pullPolicy": "Never",
            "controller.leaderElection.enable": "false",
            "controller.resources.requests.cpu": "50m",  # leaves the cores of a small machine to the jobs
        }
        self.plane.run_tool(
            "helm",
            "upgrade",
            "--install",
            "jobset",
            binaries.files("jobset"),
            f"--namespace={JOBSET_NAMESPACE}",
            "--create-namespace",
            *(f"--set={key}={value}" for key, value in values.items()),
        )

    def _wait_for_jobset(self) -> None:
        """Waits for JobSet, which reports ready some ten seconds after its start: the operator starts meanwhile."""
        deployment = ("deployment/jobset-controller", f"--namespace={JOBSET_NAMESPACE}")
        self.plane.kubectl("rollout", "status", *deployment, f"--timeout={JOBSET_SECONDS}s")

    def _say(self, line: str) -> None:
        self._announce(f"{time.monotonic() - self._began:5.1f} s  {line}")


def journal_of(directory: Path) -> Journal:
    """The journal of the cluster in a directory."""
    return Journal(directory.absolute() / "journal")


def is_running(directory: Path) -> bool:
    """Whether the process that holds the cluster of the directory is running."""
    holder = _holder(directory)
    return holder is not None and start_time(int(holder["pid"])) == holder["started"]


def redeploy(directory: Path, announce: Callable[[str], object]) -> None:
    """Updates a running cluster's operator and trainer to this checkout."""
    directory = directory.absolute()
    deploy(NodeImages(_containerd(directory), IMAGES), Client(directory / "kubeconfig"), announce)


def add_image(directory: Path, key: str, announce: Callable[[str], object]) -> str:
    """Builds an additional image and imports it into the node of a running cluster; returns its name."""
    identity = product_images.build(key, announce)
    name = product_images.image_name(key)
    images = NodeImages(_containerd(directory.absolute()), IMAGES)
    images.add(name, identity, partial(product_images.write_archive, key, identity))
    return name


def tag_image(directory: Path, name: str, other: str) -> None:
    """Gives an image on the node of a running cluster an additional name."""
    _containerd(directory.absolute()).tag_image(name, other)


def end(directory: Path) -> None:
    """Ends the cluster in a directory and undoes its changes to the machine; harmless if there is none."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "ending").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holder = _holder(directory)
        if holder is not None:
            # First, out of the journal's order: its processes would work against the steps that follow.
            end_process(holder["pid"], holder["started"])
        undo(journal_of(directory))


def _containerd(directory: Path) -> Containerd:
    return Containerd(directory, IMAGES / "containerd")


def _holder(directory: Path) -> dict[str, str] | None:
    holders = [entry for entry in journal_of(directory).entries() if entry["kind"] == "process"]
    return holders[0] if holders else None
