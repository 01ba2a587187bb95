"""Keeps the connections of a job's own processes out of proxies, which are meant for the world.

GRPC, over which JAX reaches its coordinator, TensorFlow and Megascale their peers, uses `grpc_proxy`, `https_proxy` and
`http_proxy` (grpc/grpc:src/core/handshaker/http_connect/http_proxy_mapper.cc): behind one, processes would wait for
each other until they time out. Libraries read either case of a variable; gRPC reads `no_grpc_proxy` before `no_proxy`.
"""

import ipaddress
from typing import Dict, Iterable, List, Mapping

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")
_NAMES = ("no_proxy", "NO_PROXY")
_GRPC = "no_grpc_proxy"
_HOSTS = ("TPU_WORKER_HOSTNAMES", "MEGASCALE_COORDINATOR_ADDRESS")
"""Variables with other hosts of a job, which libtpu connects to."""


def without_proxies(environ: Mapping[str, str], hosts: Iterable[str] = ()) -> Dict[str, str]:
    """The variables that exempt this machine and the hosts of a job from proxies, beside what they exempt already.

    Empty if the environment has no proxy.

    Args:
        environ: The environment that the variables are for.
        hosts: Names or addresses, each also with a port.
    """
    if not any(value and name.lower() in _PROXIES for name, value in environ.items()):
        return {}
    named = [*hosts, *(host for name in _HOSTS for host in environ.get(name, "").split(",") if host)]
    own = [*LOOPBACK, *(entry for host in map(_host_of, named) for entry in (host, *_domain(host)))]
    given = _entries(environ, _NAMES)
    exempt = {name: _joined([*given, *own]) for name in _NAMES}
    if environ.get(_GRPC):
        exempt[_GRPC] = _joined([*_entries(environ, (_GRPC,)), *own])
    return exempt


def _entries(environ: Mapping[str, str], names: Iterable[str]) -> List[str]:
    return [entry.strip() for name in names for entry in environ.get(name, "").split(",") if entry.strip()]


def _joined(entries: Iterable[str]) -> str:
    return ",".join(dict.fromkeys(entries))


def _host_of(address: str) -> str:
    """The host of `host`, `host:port` or `[address]:port`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def _domain(host: str) -> List[str]:
    """The domain that the other pods of a job have, too; none for an address or a name without a dot."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return [f".{domain}"] if (domain := host.partition(".")[2]) else []
    return []
