"""Whether this user may open the TPU of this machine: logged at start, and after a program that needed it has failed.

Non-root pods without privileges are known to work on v4, v5e and v6e; where they do not, libtpu's own words name
neither the user nor the limit that was in the way.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional

from tpujob_launcher.tpu.holders import TpuFiles

if sys.platform != "win32":
    import resource

NO_MEMORY = (b"Cannot allocate memory", b"ENOMEM")
"""What a driver's refusal to lock memory for the chips looks like."""
SMALL_BYTES = 1 << 30
"""Of memory that may be locked: less than this is worth a word beside such a refusal."""
ADVICE = (
    "the administrator may set jobs.runAsUser, jobs.addCapabilities ([SYS_RESOURCE] for locked memory) or "
    "jobs.privileged of the operator's chart"
)


@dataclass(frozen=True)
class TpuAccess:
    """The device files of a TPU machine, as this process sees them."""

    devices: List[str]
    """Each as its path, mode and owner."""
    closed: List[str]
    """Those of them that this user may not read and write."""
    user: int
    locked_bytes: Optional[int]
    """Most memory that a process may lock; None for any amount."""

    def __str__(self) -> str:
        """One line for the log."""
        limit = "any amount of" if self.locked_bytes is None else f"{self.locked_bytes >> 10} KiB of"
        return f"TPU devices for user {self.user}: {', '.join(self.devices)}; may lock {limit} memory"


def look(files: TpuFiles) -> Optional[TpuAccess]:
    """What there is; None on a machine without a TPU."""
    found = sorted(p for pattern in ("accel[0-9]*", "vfio/*") for p in files.devices.glob(pattern))
    if not [path for path in found if path.name != "vfio"]:
        return None
    closed = [str(path) for path in found if not os.access(path, os.R_OK | os.W_OK)]
    return TpuAccess([_shown(path) for path in found], closed, os.getuid(), _locked_bytes())


def diagnostics(access: Optional[TpuAccess], output: bytes) -> List[str]:
    """What the end of a program that has failed may be due to: access as it was at start, and its last lines."""
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
