"""Launcher 0 has a connection to each host: more than 1,024 descriptors, and what happens when there are no more."""

import logging
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from tests.launcher.peers.test_server import address, member
from tpujob_launcher.child.signals import SignalQueue
from tpujob_launcher.peers import messages, open_files
from tpujob_launcher.peers.messages import MAX_LINE_BYTES
from tpujob_launcher.peers.server import Server


@pytest.fixture
def limit() -> Iterator[int]:
    """The hard limit; the soft one is as before afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_limit_is_raised_to_what_all_hosts_need(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, limit))
    open_files.allow(100)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (512, limit), "it was enough"
    open_files.allow(1000)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (1000 + open_files.OTHER_FILES, limit)


def test_a_hard_limit_that_is_too_low_is_said(limit: int, caplog: pytest.LogCaptureFixture) -> None:
    open_files.allow(limit)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limit, limit)
    assert f"the hard limit (ulimit -Hn) is {limit}" in caplog.text


def test_signals_are_waited_for_beside_descriptors_above_1024(limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 3000), limit))
    reader, writer = os.pipe()
    high = os.dup2(reader, 2000)
    os.write(writer, b"x")
    try:
        with SignalQueue() as signals, os.fdopen(high, closefd=False) as file:
            assert signals.wait(60, file) == []
    finally:
        for each in (reader, writer, high):
            os.close(each)


def test_without_files_connections_wait_and_nothing_spins(
    limit: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    server = Server(member(0), limit=3, port=0)
    with socket.create_connection(address(server)) as launcher:
        launcher.sendall(messages.to_line(messages.hello(member(1))))
        resource.setrlimit(resource.RLIMIT_NOFILE, (launcher.fileno() + 1, limit))
        monkeypatch.setattr(open_files, "REST_SECONDS", 60.0)
        server.step()
        assert 0 < (server.seconds() or 0) <= 60
        assert server._selector.select(0) == [], "it would come to `step` again and again"
        assert [record.message for record in caplog.records] == [
            "connections to the launcher's port wait: Too many open files"
        ]
        monkeypatch.setattr(server._rest, "_until", 0.0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        server.step()
        server.step()
        server.fail(1, 0.0, "a bug")
        launcher.settimeout(10)
        assert messages.parse(launcher.recv(MAX_LINE_BYTES)) == ("restart", {"attempt": 1})
    server.close()
