"""The requirements of a node on this machine: Linux, root, and some packages of the distribution."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tools.localcluster import permissions

PACKAGES = {
    "containerd": "/usr/bin/containerd",
    "runc": "/usr/sbin/runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "buildah": "/usr/bin/buildah",
    "debootstrap": "/usr/sbin/debootstrap",
    "iproute2": "/sbin/ip",
    "iptables": "/usr/sbin/iptables",
}
"""Debian packages, each with the program of it that is used."""
INSTALL = ("apt-get", "install", "--yes", "--no-install-recommends")


class MachineUnfit(Exception):  # noqa: N818 - a state of the machine
    """A node cannot run here; the message says what to change."""


def missing_packages() -> list[str]:
    """The Debian packages that a node needs, but that are not installed."""
    return [package for package, program in PACKAGES.items() if not Path(program).exists()]


def why_unfit() -> str | None:
    """Why no node can run here, as far as this is known before everything is installed; None: no reason is known."""
    if sys.platform != "linux":
        return f"a node needs Linux, this is {sys.platform}"
    if os.geteuid() != 0:
        return "a node needs root, for containers, mounts and a network bridge"
    missing = missing_packages()
    if missing and shutil.which("apt-get") is None:
        return f"a node needs the programs of the Debian packages {' '.join(missing)}"
    refusals = permissions.refusals()
    return f"a node needs what this machine refuses: {'; '.join(refusals)}" if refusals else None


def prepare(announce: Callable[[str], object]) -> None:
    """Checks the machine, and installs missing packages.

    Raises:
        MachineUnfit: This machine cannot run a node, or the packages cannot be installed.
    """
    reason = why_unfit()
    if reason is not None:
        raise MachineUnfit(reason)
    missing = missing_packages()
    if not missing:
        return
    announce(f"installing {' '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update"], env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    result = subprocess.run(
        [*INSTALL, *missing], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if result.returncode != 0 or missing_packages():
        problem = (result.stderr.strip().splitlines() or ["the programs are not where they should be"])[-1]
        raise MachineUnfit(f"`{' '.join([*INSTALL, *missing])}` failed: {problem}")
    # Some permissions could not be checked without those programs.
    reason = why_unfit()
    if reason is not None:
        raise MachineUnfit(reason)
