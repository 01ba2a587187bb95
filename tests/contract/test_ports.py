"""Where process 0 listens."""

import errno
import socket
from typing import Any

import pytest

from tpujob_contract import ports


def test_process_0_listens_also_where_ipv6_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has it, so that it counts as there, and no address of it can be bound."""
    create_server = socket.create_server

    def without_ipv6(address: tuple[str, int], *, family: int = socket.AF_INET, **options: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        return create_server(address, family=family, **options)

    monkeypatch.setattr(socket, "create_server", without_ipv6)
    with ports.listener(ports.bind_host("llama-w-0-0.llama"), 0) as listener:
        assert listener.family == socket.AF_INET
