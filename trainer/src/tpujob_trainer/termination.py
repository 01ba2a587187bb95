"""What a process leaves behind for those who ask why it ended."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Mapping
from pathlib import Path

from tpujob_contract import ContractError, DistributedProcess, environment, read_environment

logger = logging.getLogger(__name__)

TERMINATION_LOG = Path("/dev/termination-log")
TERMINATION_BYTES = 4096
"""Kubernetes reads no more."""


def who(environ: Mapping[str, str]) -> str:
    """This process, as people look for it: "host-1: process 1 of 4"."""
    host = socket.gethostname()
    with contextlib.suppress(ContractError):
        process = read_environment(environ)
        if isinstance(process, DistributedProcess):
            return f"{host}: process {process.process_id} of {process.num_processes}"
    return host


def write_message(line: str, environ: Mapping[str, str]) -> None:
    """Writes the termination message, where somebody reads it."""
    given = environ.get(environment.TERMINATION_LOG)
    path = Path(given) if given else TERMINATION_LOG
    if not given and not path.exists():
        return
    try:
        path.write_bytes(line.encode()[:TERMINATION_BYTES])
    except OSError as error:
        logger.warning("Cannot write the termination message to %s: %s", path, error)
