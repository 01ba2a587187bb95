"""Connections are open files: how many of them process 0 may have."""

from __future__ import annotations

import logging
import resource

from tpujob_trainer import errors

logger = logging.getLogger(__name__)

FILES_EACH = 2
"""Connections to each process: that of the rendezvous, and the one to JAX's coordination service."""
OTHER_FILES = 256
"""Of the process itself: libraries, data, checkpoints."""


def allow(processes: int) -> None:
    """Raises the limit of this process to what so many processes need.

    Raises:
        ConfigurationError: the hard limit is below that, which no process can change.
    """
    needed = FILES_EACH * processes + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise errors.ConfigurationError(
            f"process 0 needs {needed} open files for {processes} processes ({FILES_EACH} connections each and "
            f"{OTHER_FILES} others), and its hard limit (ulimit -Hn) is {hard}; raise LimitNOFILE of the container "
            "runtime on its node, or use fewer hosts"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    logger.info("Open files: limit raised from %d to %d for %d processes", soft, needed, processes)
