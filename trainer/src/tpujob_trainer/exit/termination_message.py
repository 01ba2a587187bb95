"""What a process leaves behind for those who ask why it ended."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def write_message(line: str, environ: Mapping[str, str], report: Mapping[str, Any] | None = None) -> None:
    """Writes the termination message, where somebody reads it: a line for people, and one for the operator.

    Args:
        line: Cut where it is too long; may be empty.
        environ: Says where the message is read.
        report: What /report would say; nobody can ask for it any more.
    """
    last = f"report: {json.dumps(report)}" if report else ""
    room = TERMINATION_BYTES - len(last.encode()) - 1
    text = "\n".join(part for part in (line.encode()[:room].decode(errors="ignore"), last) if part)
    given = environ.get(environment.TERMINATION_LOG)
    path = Path(given) if given else TERMINATION_LOG
    if not given and not path.exists():
        return
    try:
        path.write_text(text)
    except OSError as error:
        logger.warning("Cannot write the termination message to %s: %s", path, error)
