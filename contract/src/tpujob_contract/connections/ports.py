"""Ports inside a pod, the same in all of a job's pods, and where process 0 listens on them."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from typing import Optional

COORDINATOR = 8476
"""JAX coordination service, served by process 0. Explicit, since JAX has changed its own default before."""
MEGASCALE = 8080
"""Coordinator of the libtpu runtime over several slices (DCN)."""
REPORT = 9432
"""HTTP /metrics and /report of every trainer process. Not 9431, the default of Orbax's and grain's own exporters."""
LAUNCHER = 8475
"""Launcher 0, where all launchers of a job of several processes meet."""


def bind_host(coordinator_host: str) -> Optional[str]:
    """Where process 0 listens: on the loopback address when the coordinator's is one, else everywhere (None)."""
    if coordinator_host == "localhost":
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(coordinator_host).is_loopback:
            return coordinator_host
    return None


def listen(coordinator_host: str, port: int, *, backlog: int = 4096) -> socket.socket:
    """A listener of process 0, in both families of addresses where it listens everywhere.

    Args:
        coordinator_host: As all processes know it.
        port: 0 for any.
        backlog: Connections that wait to be accepted.

    Raises:
        OSError: The port cannot be had.
    """
    bound = bind_host(coordinator_host)
    if bound is None and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in coordinator_host else socket.AF_INET
    return socket.create_server((bound or "", port), family=family, backlog=backlog)
