"""Ports inside a pod, the same in all of a job's pods, and where process 0 listens on them."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket

COORDINATOR = 8476
"""JAX coordination service, served by process 0. Explicit, since JAX has changed its own default before."""
MEGASCALE = 8080
"""Coordinator of the libtpu runtime over several slices (DCN)."""
REPORT = 9432
"""HTTP /metrics and /report of every trainer process. Not 9431, the default of Orbax's and grain's own exporters."""
LAUNCHER = 8475
"""Launcher 0, where all launchers of a job of several processes meet."""
IN_PLACE = 8474
"""HTTP /in-place of launcher 0, where programs that serve no report start again in place."""

EVERY_ADDRESS = ""
"""All interfaces, of IPv6 as well where the machine has it."""


def bind_host(coordinator_host: str) -> str:
    """Where process 0 listens: on the loopback address when the coordinator's is one, else on EVERY_ADDRESS."""
    if coordinator_host == "localhost":
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(coordinator_host).is_loopback:
            return coordinator_host
    return EVERY_ADDRESS


def listener(host: str, port: int, *, backlog: int = 4096) -> socket.socket:
    """A listener on an address, or on EVERY_ADDRESS; port 0 is any free one.

    Raises:
        OSError: The port cannot be had.
    """
    if host == EVERY_ADDRESS and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # IPv6 is switched off on this machine
                raise
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)
