"""Finds the processes that hold the TPU of this machine: only one can open a chip at a time, and libtpu opens all.

A program that starts while another one still holds the TPU fails minutes later with a message about libtpu. This check
runs before the program starts, and names the holder.
"""

import contextlib
import logging
import os
import signal
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Set

from tpujob_contract.environment import Process
from tpujob_contract.exit_codes import ExitCode
from tpujob_launcher.supervise.outcome import Refused
from tpujob_launcher.supervise.processes import command_line
from tpujob_launcher.supervise.signals import STOP, SignalQueue

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TpuFiles:
    """The paths that show whether there is a TPU, and which process holds it."""

    devices: Path = Path("/dev")
    """Contains accel0… (v2 to v4) or vfio/0… (v5e and later)."""
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
        """A message with the process and what it holds."""
        if self.pid <= 0:  # the number that Linux gives for a process that is not visible here
            return f"a process outside this container holds {self.path}"
        return f"process {self.pid} ({self.command or 'command line not readable'}) holds {self.path}"


def wants_whole_tpu(environ: Mapping[str, str]) -> bool:
    """Whether a program with this environment may open all chips of the machine.

    It does not if JAX is set to another platform. If the job divides the chips between processes or allows sharing,
    another holder is expected. The variables are those that libtpu reads.
    """
    platforms = environ.get("JAX_PLATFORMS", "")
    if platforms and "tpu" not in platforms.split(","):
        return False
    shared = environ.get("ALLOW_MULTIPLE_LIBTPU_LOAD", "").lower() in ("1", "true")
    return not (shared or environ.get("TPU_VISIBLE_CHIPS") or environ.get("TPU_VISIBLE_DEVICES"))


def find_holders(files: TpuFiles) -> List[Holder]:
    """All other live processes known to hold the TPU; empty on a machine without one.

    Known are processes of this container that this user may inspect; the lock shows its holder to every user.
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
    except OSError:  # it has ended, or belongs to another user
        return paths
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed in the meantime
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
        return []  # it does not exist, or belongs to another user, which libtpu reports itself
    kind, pid = answer[0], answer[4]
    return [] if kind == fcntl.F_UNLCK else [pid]


def wait_for_tpu(
    environ: Mapping[str, str],
    process: Process,
    tpu: TpuFiles,
    signals: SignalQueue,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Returns once no other process holds the TPU; calls `meanwhile` repeatedly.

    Waits at most a grace period, which is enough for a holder that is ending, and at most `startup_seconds`, after
    which the other processes do not wait for this one.

    Raises:
        Refused: It is still held then, or this process is asked to stop.
    """
    if not wants_whole_tpu(environ):
        return
    limit = min(process.grace_seconds, process.startup_seconds)
    deadline = time.monotonic() + limit
    is_told = False
    while True:
        holders = "; ".join(map(str, find_holders(tpu)))
        if not holders:
            return
        if time.monotonic() >= deadline:
            raise Refused(
                ExitCode.TPU_HELD, f"the TPU is in use: {holders}, still after {limit} s; end it, or use another host"
            )
        if not is_told:
            logger.warning("the TPU is in use: %s; waiting up to %d s", holders, limit)
            is_told = True
        meanwhile()
        for number in signals.wait(min(0.5, max(0.0, deadline - time.monotonic()))):
            if number in STOP:
                name = signal.Signals(number).name
                raise Refused(ExitCode.STOPPED, f"told to stop by {name} before anything was started; {holders}")
