"""Launchers of several releases in one job: what the images of an upgrade, or a tag that moved, bring together."""

import json
import logging
import socket
from typing import Any

import pytest

from tests.launcher.peers.test_server import address, has_member, hello, replacing, server
from tools.localcluster.waiting import wait_for
from tpujob_launcher.peers import messages
from tpujob_launcher.peers.server import Server

__all__ = ["replacing", "server"]

OF_ANOTHER = (
    "the launcher of process 1 on host b is of another release (its messages have version 2, those of process 0 have "
    "version 1), so these do not understand each other: all pods of a job need one image"
)


def heard(server: Server, stranger: socket.socket) -> dict[str, Any]:
    """What it is told before the connection is closed, by kind."""
    received = b""

    def is_closed() -> bool:
        nonlocal received
        server.step()
        try:
            more = stranger.recv(4096)
        except BlockingIOError:
            return False
        received += more
        return not more

    stranger.setblocking(False)
    wait_for("the end of the connection", is_closed)
    return {kind: values for line in received.splitlines() for kind, values in json.loads(line).items()}


def test_one_of_another_release_is_named_to_all_programs_at_the_rendezvous(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server._handle_of_program("hello", {"configuration": "c0ffee", "versions": {}})
    for _ in range(2):  # it comes again
        with socket.create_connection(address(server)) as stranger, caplog.at_level(logging.WARNING):
            stranger.sendall(hello(None, version=2))
            told = heard(server, stranger)
    assert told["round"]["refused"] == {"error": "ConfigurationError", "message": OF_ANOTHER}
    assert server.state.refused == told["round"]["refused"]
    assert [record.message for record in caplog.records] == [OF_ANOTHER]
    assert (server.state.over, server.state.has_to_end) == (None, False), "programs that are not connected go on"


@pytest.mark.parametrize("changes", [{"job": "team-a/other"}, {"attempt": 7}, {"processes": 3}, {"process": 2}])
def test_one_of_another_job_says_nothing_about_this_one(server: Server, changes: dict[str, Any]) -> None:
    with socket.create_connection(address(server)) as stranger:
        stranger.sendall(hello(None, **{"version": 2, **changes}))
        assert heard(server, stranger) == {}
    assert server.state.refused is None


def test_nobody_waits_for_a_new_pod_whose_launcher_is_of_another_release(replacing: Server) -> None:
    """Its image is a later one than those of the others; in new pods all have that."""
    with socket.create_connection(address(replacing)) as launcher:
        launcher.sendall(hello())
        wait_for("the launcher", lambda: has_member(replacing))
        replacing.fail(1, 1.0, "a bug")
    wait_for("its end", lambda: not has_member(replacing))
    with socket.create_connection(address(replacing)) as stranger:
        stranger.sendall(hello(None, version=2))
        assert heard(replacing, stranger)["round"]["over"] == OF_ANOTHER
    assert replacing.state.over == OF_ANOTHER


@pytest.mark.parametrize("jax", ["1.1", "1.0"], ids=["a newer image", "the same image"])
def test_a_new_pod_with_a_newer_image_costs_all_pods_and_not_the_job(replacing: Server, jax: str) -> None:
    """A tag may have moved since the others pulled it: in new pods all have what it names now."""
    with socket.create_connection(address(replacing)) as launcher:
        launcher.sendall(hello())
        wait_for("the launcher", lambda: has_member(replacing))
        replacing.fail(137, 1.0, "killed")
        replacing.report((messages.READY, {"attempt": 1}))
        launcher.sendall(messages.to_line((messages.READY, {"attempt": 1})))
        wait_for("the next attempt", lambda: has_member(replacing) and replacing.state.allowed == 1)
        replacing.begin(1)
        replacing._handle_of_program("hello", {"configuration": "c0ffee", "versions": {"jax": "1.0"}})
        here = {"attempt": 1, "configuration": "c0ffee", "versions": {"jax": jax}}
        launcher.sendall(messages.to_line((messages.JOINED, here)))

        def is_decided() -> bool:
            return has_member(replacing) and bool(replacing.state.met or replacing.state.refused)

        wait_for("the meeting", is_decided)
    if jax == "1.0":
        assert (replacing.state.refused, replacing.state.over) == (None, None)
        return
    refused = replacing.state.refused
    assert refused is not None
    assert refused["error"] == "TrainerError", "78 would end the job for good"
    assert (
        "have different versions: jax 1.1 and 1.0; all processes of a run must use the same image" in refused["message"]
    )
    over = replacing.state.over
    assert over is not None
    assert refused["message"].startswith(over)


@pytest.mark.parametrize(
    ("at", "error"),
    [(None, "TrainerError"), (0, "ConfigurationError")],
    ids=["in place of one that was lost before it connected", "at the first start of all pods"],
)
def test_a_newer_image_ends_the_job_only_if_all_pods_are_first_ones(
    replacing: Server, at: int | None, error: str
) -> None:
    replacing._handle_of_program("hello", {"configuration": "c0ffee", "versions": {"jax": "1.0"}})
    with socket.create_connection(address(replacing)) as launcher:
        here = {"attempt": 0, "configuration": "c0ffee", "versions": {"jax": "1.1"}}
        launcher.sendall(hello(at) + messages.to_line((messages.JOINED, here)))
        wait_for("the meeting", lambda: has_member(replacing) and replacing.state.refused is not None)
    assert replacing.state.refused is not None
    assert replacing.state.refused["error"] == error
    assert (replacing.state.over is not None) == (at is None), "no attempt of these pods is of use"


@pytest.mark.parametrize(("at", "error"), [(None, "TrainerError"), (0, "ConfigurationError")])
def test_a_launcher_of_another_release_ends_the_job_only_in_a_first_pod(
    replacing: Server, at: int | None, error: str
) -> None:
    replacing._handle_of_program("hello", {"configuration": "c0ffee", "versions": {}})
    with socket.create_connection(address(replacing)) as stranger:
        stranger.sendall(hello(at, version=2))
        heard(replacing, stranger)
    assert replacing.state.refused is not None
    assert replacing.state.refused["error"] == error
