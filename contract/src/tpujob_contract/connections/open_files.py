"""The limit of open files: process 0 of a large job has several connections to each process."""

import logging
import resource

logger = logging.getLogger(__name__)

OTHER_FILES = 256
"""Files that the process itself opens: libraries, data, checkpoints."""


class TooFewFiles(ValueError):  # noqa: N818 - as people say it
    """The hard limit is too low, which no process can change."""


def allow(processes: int, each: int) -> None:
    """Raises this process's limit of open files to what a job of this size needs.

    Args:
        processes: The number of processes of the job.
        each: Connections to each of them.

    Raises:
        TooFewFiles: The hard limit is below that.
    """
    needed = each * processes + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise TooFewFiles(
            f"process 0 needs {needed} open files for {processes} processes ({each} connections each and "
            f"{OTHER_FILES} others), and its hard limit (ulimit -Hn) is {hard}; raise LimitNOFILE of the container "
            "runtime on its node, or use fewer hosts"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    logger.info("Open files: limit raised from %d to %d for %d processes", soft, needed, processes)
