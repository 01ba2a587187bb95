"""Connections are open files: how many launcher 0 may have, and what it does when there are no more."""

from __future__ import annotations

import errno
import logging
import resource
import time
from typing import Optional

logger = logging.getLogger(__name__)

OTHER_FILES = 256
"""Of launcher 0 itself, and strangers that have not been dropped yet."""
REST_SECONDS = 1.0
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Why a connection cannot be accepted now, and stays in the queue: the listener stays readable."""


def allow(processes: int) -> None:
    """Raises the limit of this process to what a connection to each of so many launchers needs, as far as it may.

    The programs that it starts inherit the limit; it only grows by what is missing.
    """
    needed = processes + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    possible = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
    if possible < needed:
        logger.warning(
            "%d launchers need %d open files here, and the hard limit (ulimit -Hn) is %d: some cannot connect, and no "
            "attempt in place follows; raise LimitNOFILE of the container runtime on its node",
            processes,
            needed,
            hard,
        )


class Rest:
    """When to accept connections again after there were no files for one."""

    def __init__(self) -> None:
        """Nothing is to wait for."""
        self._until: Optional[float] = None
        self._has_warned = False

    def begin(self, error: OSError) -> None:
        """Connections wait from now on; logged once."""
        self._until = time.monotonic() + REST_SECONDS
        if not self._has_warned:
            self._has_warned = True
            logger.warning("connections to the launcher's port wait: %s", error.strerror)

    def is_over(self) -> bool:
        """Whether connections have waited, and are to be accepted again from now on."""
        if self._until is None or time.monotonic() < self._until:
            return False
        self._until = None
        return True

    def seconds(self) -> Optional[float]:
        """Until it is over; None: there is none."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())
