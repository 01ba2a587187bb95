"""A second node that can lose its power: a kubelet and a containerd of its own, on the network of a running cluster.

The caller is the parent of its processes. What else it changes is in a journal of its own, which the journal of
the cluster names: ending the cluster ends it, too.
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
"""Of containerd's root: what it knows of images, and their files."""


class SecondMachine:
    """Joins the cluster when it is started, and is silent from one moment to the next when it loses its power.

    Attributes:
        api: As an administrator sees it.
    """

    def __init__(self, cluster: Path, api: Api) -> None:
        """Describes it.

        Args:
            cluster: The folder of a cluster that is up.
            api: As an administrator sees it.
        """
        self._cluster = cluster
        self.api = api
        self._directory = cluster / SECOND.name
        self._journal = Journal(self._directory / "journal")
        self._images = IMAGES / SECOND.name
        self._processes: list[Process] = []

    def start(self) -> None:
        """Returns when its node is ready; it has the images that the first node has now."""
        journal_of(self._cluster).note("journal", file=str(self._journal.file))
        self._journal.note("tree", folder=str(self._images))
        _copy_images(IMAGES / "containerd", self._images, process_with(f"--config={self._cluster}/containerd.toml"))
        containerd = Containerd(self._directory, self._images)
        write_plugin_configuration(containerd.network_configurations, self._cluster / "addresses")
        self._processes.append(containerd.start_without_containers(self._journal))
        kubelet = binaries.path("kubelet")
        self._processes.append(start_kubelet(SECOND, self._cluster, self.api, kubelet, containerd, self._journal))

    def lose_power(self) -> None:
        """Ends all that runs on it without a notice to the API server or the peers of its pods."""
        for process in self._processes:
            os.kill(process.pid, signal.SIGKILL)
        for pid in processes_below(SECOND.control_group):
            # A process that ends closes its connections, and the kernel says so; a machine without power does not.
            command = ("nsenter", f"--target={pid}", "--net", "ip", "link", "set", "eth0", "down")
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        while self._processes:
            self._processes.pop().stop()
        undo(self._journal)


def _copy_images(source: Path, target: Path, containerd: int) -> None:
    """Links the files of all images, which never change, and copies the databases, while containerd stands still."""
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
