"""A second node that can lose its power: its own kubelet and containerd, on the network of a running cluster.

The caller is the parent of its processes. Its other changes are in its own journal, which is an entry in the cluster's
journal: ending the cluster ends it, too.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

from tools.localcluster import binaries
from tools.localcluster.api import Api
from tools.localcluster.containerd import Containerd
from tools.localcluster.kubelet import SECOND, start_kubelet
from tools.localcluster.network import write_plugin_configuration
from tools.localcluster.one_machine import IMAGES, journal_of
from tools.localcluster.processes import Process
from tools.localcluster.undo import Journal, process_with, processes_below, undo

DATABASES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")
FOLDERS = ("io.containerd.content.v1.content", *(database.partition("/")[0] for database in DATABASES))
"""Folders of containerd's root that have the metadata of images and their files."""


class SecondMachine:
    """A node that joins the cluster when it is started, and is silent at once when it loses its power.

    Attributes:
        api: With administrator rights.
    """

    def __init__(self, cluster: Path, api: Api) -> None:
        """Sets its paths; nothing is started yet.

        Args:
            cluster: The folder of a cluster that is up.
            api: With administrator rights.
        """
        self._cluster = cluster
        self.api = api
        self._directory = cluster / SECOND.name
        self._journal = Journal(self._directory / "journal")
        self._images = IMAGES / SECOND.name
        self._processes: list[Process] = []

    def start(self) -> None:
        """Starts it with a copy of the first node's images; returns when its node is ready."""
        journal_of(self._cluster).note("journal", file=str(self._journal.file))
        self._journal.note("tree", folder=str(self._images))
        _copy_images(IMAGES / "containerd", self._images, process_with(f"--config={self._cluster}/containerd.toml"))
        containerd = Containerd(self._directory, self._images)
        write_plugin_configuration(containerd.network_configurations, self._cluster / "addresses")
        self._processes.append(containerd.start_without_containers(self._journal))
        kubelet = binaries.path("kubelet")
        self._processes.append(start_kubelet(SECOND, self._cluster, self.api, kubelet, containerd, self._journal))

    def lose_power(self) -> None:
        """Kills everything that runs on it, without notice to the API server or the peers of its pods."""
        for process in self._processes:
            os.kill(process.pid, signal.SIGKILL)
        for pid in processes_below(SECOND.control_group):
            # When a process ends, the kernel closes its connections, and peers notice; without power, they do not.
            command = ("nsenter", f"--target={pid}", "--net", "ip", "link", "set", "eth0", "down")
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        while self._processes:
            self._processes.pop().stop()
        undo(self._journal)


def _copy_images(source: Path, target: Path, containerd: int) -> None:
    """Links the files of all images, which never change, and copies the databases, while containerd is paused."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    os.kill(containerd, signal.SIGSTOP)
    try:
        subprocess.run(["cp", "--archive", "--link", *(source / name for name in FOLDERS), target], check=True)
        for database in DATABASES:
            (target / database).unlink()
            shutil.copy2(source / database, target / database)
    finally:
        os.kill(containerd, signal.SIGCONT)
