"""Who holds the TPU of this machine: a chip can be opened by one process at a time, and libtpu takes all of them.

A program that starts while another one still holds it fails minutes later with a message about libtpu. Checked before
anything is started, the message names the process.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Set

from tpujob_launcher.child.processes import command_line

if sys.platform != "win32":
    import fcntl


@dataclass(frozen=True)
class TpuFiles:
    """Where the traces of a TPU and of its user are."""

    devices: Path = Path("/dev")
    """Holds accel0… (v2 to v4) or vfio/0… (v5e and later)."""
    lock_file: Path = Path("/tmp/libtpu_lockfile")  # noqa: S108 - libtpu's choice
    """libtpu holds a lockf() lock on it (openxla/xla:xla/stream_executor/tpu/tpu_initialize_util.cc)."""
    proc: Path = Path("/proc")


@dataclass(frozen=True)
class Holder:
    """A living process that holds a TPU device or libtpu's lock."""

    pid: int
    command: str
    path: str

    def __str__(self) -> str:
        """The sentence about it."""
        if self.pid <= 0:  # how Linux names a process that cannot be seen from here
            return f"a process outside this container holds {self.path}"
        return f"process {self.pid} ({self.command or 'command line not readable'}) holds {self.path}"


def wants_whole_tpu(environ: Mapping[str, str]) -> bool:
    """Whether a program with this environment may take every chip of the machine.

    Not so when JAX is set to another platform, and where the job has divided the chips between processes or has
    allowed sharing: then another holder is no surprise. The names are those that libtpu reads.
    """
    platforms = environ.get("JAX_PLATFORMS", "")
    if platforms and "tpu" not in platforms.split(","):
        return False
    shared = environ.get("ALLOW_MULTIPLE_LIBTPU_LOAD", "").lower() in ("1", "true")
    return not (shared or environ.get("TPU_VISIBLE_CHIPS") or environ.get("TPU_VISIBLE_DEVICES"))


def find_holders(files: TpuFiles) -> List[Holder]:
    """Every other living process seen to hold the TPU; none on a machine without one.

    Seen are the processes of this container that this user may look into; the lock names its holder to everybody.
    """
    devices = {str(p) for pattern in ("accel[0-9]*", "vfio/[0-9]*") for p in files.devices.glob(pattern)}
    if not devices:
        return []
    found: Dict[int, str] = {}
    for process in files.proc.glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        for path in sorted(_open_files(process) & devices):
            found.setdefault(int(process.name), path)
    for pid in _lock_holders(files.lock_file):
        found.setdefault(pid, str(files.lock_file))
    return [Holder(pid, command_line(pid, files.proc), path) for pid, path in sorted(found.items())]


def _open_files(process: Path) -> Set[str]:
    paths: Set[str] = set()
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:  # ended meanwhile, or another user's
        return paths
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            paths.add(os.readlink(descriptor))  # noqa: PTH115 - "pipe:[1]" is no path
    return paths


def _lock_holders(path: Path) -> List[int]:
    if sys.platform != "linux":
        return []
    try:
        with path.open("rb") as file:
            # struct flock of 64-bit Linux: type, whence, start, length, pid. "Could I lock all of it?"
            question = struct.pack("hhlli", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = struct.unpack("hhlli", fcntl.fcntl(file, fcntl.F_GETLK, question))
    except OSError:
        return []  # not there, or another user's: libtpu says so itself
    kind, pid = answer[0], answer[4]
    return [] if kind == fcntl.F_UNLCK else [pid]
