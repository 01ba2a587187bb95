"""A containerd for one cluster, with its socket, state and images in the cluster's folders."""

import json
import subprocess
from pathlib import Path

from tools.localcluster.network import PLUGINS
from tools.localcluster.processes import Process
from tools.localcluster.undo import Journal

PROGRAM = Path("/usr/bin/containerd")
CONTROL = Path("/usr/bin/ctr")
PAUSE_IMAGE = "tpujob.test/pause:local"
NAMESPACE = "k8s.io"
"""containerd's namespace of the kubelet's images and containers."""

SNAPSHOT_COLLECTED = "parent snapshot"
"""Part of the error of an import that reuses a layer of the image that it replaces while containerd garbage-collects
that image's layers. They are gone afterwards, and the next import unpacks its own."""


class ImageError(Exception):
    """containerd rejected an image; the message is containerd's."""


class Containerd:
    """The container runtime of the one node.

    Attributes:
        socket: To which the kubelet connects.
        network_configurations: The folder of CNI configurations.
    """

    def __init__(self, directory: Path, images: Path) -> None:
        """Sets the paths; nothing is started yet.

        Args:
            directory: For its socket, state and log.
            images: For its images, which may be kept after the cluster.
        """
        self._directory = directory
        self._images = images
        self._state = directory / "containerd"
        self.socket = directory / "containerd.sock"
        self.network_configurations = directory / "cni"

    def start(self, journal: Journal) -> Process:
        """Starts it; returns when it responds."""
        journal.note("mounts", directory=str(self._directory))
        journal.note("mounts", directory=str(self._images))
        journal.note("shims", socket=str(self.socket), state=str(self._state))
        file = self._directory / "containerd.toml"
        file.write_text(self._configuration())
        process = Process("containerd", [PROGRAM, f"--config={file}"], self._directory / "containerd.log")
        process.wait_until_ready("containerd to answer", self._answers)
        return process

    def start_without_containers(self, journal: Journal) -> Process:
        """Starts it with the images that it has, and deletes the containers of an earlier cluster."""
        process = self.start(journal)
        self._forget_containers()
        # It has read them at its start, and keeps them in memory until a restart.
        process.stop()
        return self.start(journal)

    def images(self) -> set[str]:
        """The names of its images."""
        return set(self._ctr("images", "list", "--quiet").split())

    def import_image(self, archive: Path) -> None:
        """Imports an image from a `docker save` archive.

        Raises:
            ImageError: The import failed.
        """
        command = ("images", "import", "--digests=false", str(archive))
        try:
            self._ctr(*command)
        except ImageError as error:
            if SNAPSHOT_COLLECTED not in str(error):
                raise
            self._ctr(*command)

    def tag_image(self, name: str, other: str) -> None:
        """Gives an image an additional name, and takes that name from another image if it had it."""
        self._ctr("images", "tag", "--force", name, other)

    def forget_image(self, identity: str) -> None:
        """Removes the name that the CRI plugin gives to an image, its id, so that its disk space is freed."""
        self._run("--namespace", NAMESPACE, "images", "remove", identity)

    def _forget_containers(self) -> None:
        for container in self._ctr("containers", "list", "--quiet").split():
            self._ctr("containers", "delete", container)

    def _answers(self) -> bool:
        return self._run("version").returncode == 0

    def _ctr(self, *arguments: str) -> str:
        result = self._run("--namespace", NAMESPACE, *arguments)
        if result.returncode != 0:
            raise ImageError(f"ctr {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(CONTROL), "--address", str(self.socket), *arguments]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def _configuration(self) -> str:
        return CONFIGURATION.format(
            root=_quoted(self._images),
            state=_quoted(self._state),
            socket=_quoted(self.socket),
            optional=_quoted(self._directory / "opt"),
            pause=json.dumps(PAUSE_IMAGE),
            plugins=_quoted(PLUGINS),
            networks=_quoted(self.network_configurations),
            runc=_quoted(self._directory / "runc"),
        )


def _quoted(path: Path) -> str:
    return json.dumps(str(path))  # a TOML string


CONFIGURATION = """\
version = 2
root = {root}
state = {state}
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
                    "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]
[grpc]
address = {socket}
[plugins."io.containerd.internal.v1.opt"]
path = {optional}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = {pause}
# A sandbox asks for a negative oom_score_adj, which needs a capability that this machine may lack.
restrict_oom_score_adj = true
# Below `state`, so that no name has to be told apart from those of another runtime.
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {plugins}
conf_dir = {networks}
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = {runc}
SystemdCgroup = false
"""
