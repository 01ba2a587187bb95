"""Checks a node's permissions by doing each operation and undoing it: root in a container may have none of them."""

import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tools.localcluster import kept
from tools.localcluster.undo import CONTROL_GROUPS

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
LEAST_DISK_BYTES = 12 * 2**30
"""Images, as the builder and as the node store them, take two thirds of it."""
LEAST_MEMORY_BYTES = 6 * 2**30


def refusals() -> list[str]:
    """The refused operations, each a text with the reason; empty if a node can run. Leaves nothing behind.

    Operations that need a program that is not installed are left out: they can be tried once it is.
    """
    found = []
    for what, attempt in ATTEMPTS.items():
        try:
            attempt()
        except ProgramMissing:
            continue
        except (OSError, Refused) as error:
            found.append(f"{what} ({error})")
    return found


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """A tried operation failed; the message is the reason."""


class ProgramMissing(Exception):  # noqa: N818 - an answer, not a fault
    """An operation needs a program that is not installed."""


def _mount() -> None:
    """Mounts an overlay on the disk for the images: the kernel refuses that if the disk itself is an overlay."""
    kept.FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.FOLDER, prefix="probe-") as folder:
        parts = {name: Path(folder) / name for name in ("lowerdir", "upperdir", "workdir", "merged")}
        for part in parts.values():
            part.mkdir()
        options = ",".join(f"{name}={part}" for name, part in parts.items() if name != "merged")
        attempt_command("mount", "-t", "overlay", "overlay", "-o", options, str(parts["merged"]))
        attempt_command("umount", str(parts["merged"]))


def _make_control_groups() -> None:
    is_unified = (CONTROL_GROUPS / "cgroup.controllers").exists()
    hierarchies = [CONTROL_GROUPS] if is_unified else [path for path in CONTROL_GROUPS.iterdir() if path.is_dir()]
    if not hierarchies:
        raise Refused(f"nothing is mounted at {CONTROL_GROUPS}")
    for hierarchy in hierarchies:
        group = hierarchy / f"tpujob-probe-{os.getpid()}"
        group.mkdir()
        group.rmdir()


def _make_bridge() -> None:
    name = f"tpj{secrets.token_hex(4)}"
    attempt_command("ip", "link", "add", name, "type", "bridge")
    attempt_command("ip", "link", "delete", name)


def _change_packet_rules() -> None:
    rule = ("POSTROUTING", "--source", "192.0.2.1", "--match", "comment", "--comment", "probe", "--jump", "MASQUERADE")
    attempt_command("iptables", "--wait", "--table", "nat", "--append", *rule)
    attempt_command("iptables", "--wait", "--table", "nat", "--delete", *rule)


def _forward_packets() -> None:
    FORWARDING.write_text(FORWARDING.read_text())


def _make_namespaces() -> None:
    attempt_command("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--mount-proc", "true")


def _have_room() -> None:
    kept.FOLDER.mkdir(parents=True, exist_ok=True)
    disk = os.statvfs(kept.FOLDER)
    free, memory = disk.f_bavail * disk.f_frsize, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # With the images of an earlier cluster in the cache, this one needs no more space for them.
    has_images = (kept.FOLDER / "node").exists()
    if free < LEAST_DISK_BYTES and not has_images:
        raise Refused(f"{free / 2**30:.0f} GiB are free, {LEAST_DISK_BYTES / 2**30:.0f} are needed")
    if memory < LEAST_MEMORY_BYTES:
        raise Refused(f"{memory / 2**30:.0f} GiB of memory, {LEAST_MEMORY_BYTES / 2**30:.0f} are needed")


def attempt_command(*command: str) -> None:
    """Runs a command.

    Raises:
        ProgramMissing: There is no such program.
        Refused: It failed.
    """
    try:
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ProgramMissing(command[0]) from error
    if result.returncode != 0:
        raise Refused((result.stderr.strip().splitlines() or [f"{command[0]} failed"])[0])


ATTEMPTS: dict[str, Callable[[], None]] = {
    "mounting an overlay": _mount,
    "making control groups": _make_control_groups,
    "making a network bridge": _make_bridge,
    "changing packet rules": _change_packet_rules,
    "letting packets be forwarded": _forward_packets,
    "making namespaces": _make_namespaces,
    "room": _have_room,
}
