"""Ports inside a pod, the same in all pods of a job, and the addresses on which process 0 listens."""

import contextlib
import errno
import ipaddress
import socket

COORDINATOR = 8476
"""JAX coordination service, served by process 0. Set explicitly because JAX has changed its default before."""
MEGASCALE = 8080
"""Coordinator of the libtpu runtime over several slices (DCN)."""
REPORT = 9432
"""HTTP /metrics and /report of every trainer process. Not 9431, the default of Orbax's and grain's own exporters."""
LAUNCHER = 8475
"""Launcher 0, to which all launchers of a job with several processes connect."""
IN_PLACE = 8474
"""HTTP /in-place of launcher 0, if programs that serve no report may start again in place."""

EVERY_ADDRESS = ""
"""All interfaces, including IPv6 if the machine has it."""


def bind_host(coordinator_host: str) -> str:
    """The address on which process 0 listens: the coordinator's if that is loopback, otherwise EVERY_ADDRESS."""
    if coordinator_host == "localhost":
        return "127.0.0.1"
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(coordinator_host).is_loopback:
            return coordinator_host
    return EVERY_ADDRESS


def listener(host: str, port: int, *, backlog: int = 4096) -> socket.socket:
    """A listening socket on an address, or on EVERY_ADDRESS; port 0 is any free one.

    Raises:
        OSError: The port is not available.
    """
    if host == EVERY_ADDRESS and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # IPv6 is switched off on this machine
                raise
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)
