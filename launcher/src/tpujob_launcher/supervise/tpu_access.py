"""Whether this user may open the TPU of this machine: logged at start, and reported if a program that needed it fails.

Non-root pods without privileges are known to work on v4, v5e and v6e; if one does not, libtpu's own messages name
neither the user nor the limit that prevented it.
"""

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional

from tpujob_launcher.supervise.tpu import TpuFiles

if sys.platform != "win32":
    import resource

NO_MEMORY = (b"Cannot allocate memory", b"ENOMEM")
"""Texts by which output shows that the driver could not lock memory for the chips."""
SMALL_BYTES = 1 << 30
"""Lockable memory below this is reported if the driver could not lock memory."""
ADVICE = (
    "the administrator may set jobs.runAsUser, jobs.addCapabilities ([SYS_RESOURCE] for locked memory) or "
    "jobs.privileged of the operator's chart"
)


@dataclass(frozen=True)
class TpuAccess:
    """The device files of a TPU machine, as this process sees them."""

    devices: List[str]
    """Path, mode and owner of each device file."""
    closed: List[str]
    """Paths that this user may not read and write."""
    user: int
    locked_bytes: Optional[int]
    """Most memory that a process may lock; None: no limit."""

    def __str__(self) -> str:
        """One line for the log."""
        limit = "any amount of" if self.locked_bytes is None else f"{self.locked_bytes >> 10} KiB of"
        return f"TPU devices for user {self.user}: {', '.join(self.devices)}; may lock {limit} memory"


def look(files: TpuFiles) -> Optional[TpuAccess]:
    """The access of this process to the TPU; None: the machine has none."""
    found = sorted(p for pattern in ("accel[0-9]*", "vfio/*") for p in files.devices.glob(pattern))
    if not [path for path in found if path.name != "vfio"]:
        return None
    closed = [str(path) for path in found if not os.access(path, os.R_OK | os.W_OK)]
    return TpuAccess([_shown(path) for path in found], closed, os.getuid(), _locked_bytes())


def diagnostics(access: Optional[TpuAccess], output: bytes) -> List[str]:
    """Possible reasons why a program failed, from the access at start and the last lines of its output."""
    if access is None:
        return []
    found = []
    if access.closed:
        found.append(f"user {access.user} may not open {', '.join(access.closed)} (EACCES): {ADVICE}")
    is_limited = access.locked_bytes is not None and access.locked_bytes < SMALL_BYTES
    if is_limited and any(words in output for words in NO_MEMORY):
        found.append(f"a process may lock {(access.locked_bytes or 0) >> 10} KiB of memory only (ENOMEM): {ADVICE}")
    return found


def _shown(path: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        return f"{path} ({error.strerror})"
    return f"{path} {stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}"


def _locked_bytes() -> Optional[int]:
    if sys.platform == "win32":
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft
