"""Real sockets on loopback; each process is a thread here."""

import concurrent.futures
import socket
import time

import pytest

from tools.localcluster.processes import free_ports
from tpujob_contract.connections import line_server, ports
from tpujob_trainer import errors
from tpujob_trainer.distributed import rendezvous_client
from tpujob_trainer.distributed.rendezvous_messages import Hello, to_line
from tpujob_trainer.distributed.versions import JOB_CODE

LIMIT_SECONDS = 120.0
VERSIONS = {"jax": "1.0", "flax": "2.0"}


def hello(process_id, **changed):
    values = {"run": "test/job 1.0", "host": f"host-{process_id}", "configuration": "c0ffee", "versions": VERSIONS}
    return Hello(process_id=process_id, **{**values, **changed})


LINES: list[socket.socket] = []
"""What the present test has to close."""


@pytest.fixture(autouse=True)
def _close_lines():
    yield
    while LINES:
        LINES.pop().close()


def keep_lines(meet, *arguments, **keywords):
    met = meet(*arguments, **keywords)
    LINES.extend(met[1].values())
    return met


class Rendezvous:
    """Some processes that meet at a free port."""

    def __init__(self, size, limit_seconds=LIMIT_SECONDS):
        self.port = free_ports(1)[0]
        self.positions = [f"slice 0, host {i}" for i in range(size)]
        self.limit = limit_seconds
        self.pool = concurrent.futures.ThreadPoolExecutor(size + 2)

    def come(self, own):
        there = {"host": "127.0.0.1", "port": self.port, "limit_seconds": self.limit}
        if own.process_id == 0:
            return self.pool.submit(keep_lines, rendezvous_client.receive, own, self.positions, **there)
        return self.pool.submit(keep_lines, rendezvous_client.report_to, own, self.positions[0], **there)

    def all_of(self, *hellos):
        """What each got: the nonce, or the error."""
        futures = [self.come(own) for own in hellos]
        return [future.exception(3 * LIMIT_SECONDS) or future.result()[0] for future in futures]

    def connect(self):
        deadline = time.monotonic() + 100
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=100)
            except ConnectionRefusedError:
                assert time.monotonic() < deadline


def test_all_get_one_nonce_and_the_hosts():
    found = Rendezvous(4).all_of(*(hello(i) for i in range(4)))
    assert len({each.nonce for each in found}) == 1
    assert len(found[0].nonce) == 8
    assert found[0].hosts == ("host-0", "host-1", "host-2", "host-3")


def test_process_is_sent_no_names_but_that_of_the_lead():
    found = Rendezvous(4).all_of(*(hello(i) for i in range(4)))
    assert found[2].hosts == ("host-0", "", "host-2", "")


def test_nonce_is_new_each_time():
    assert Rendezvous(1).all_of(hello(0)) != Rendezvous(1).all_of(hello(0))


def test_others_may_come_before_the_lead():
    rendezvous = Rendezvous(2)
    early = rendezvous.come(hello(1))
    with pytest.raises(concurrent.futures.TimeoutError):
        early.result(0.4)
    late = rendezvous.come(hello(0))
    assert early.result(LIMIT_SECONDS)[0].nonce == late.result(LIMIT_SECONDS)[0].nonce


def test_port_is_free_beside_the_lines():
    rendezvous = Rendezvous(3)
    futures = [rendezvous.come(hello(i)) for i in range(3)]
    lines = [future.result(LIMIT_SECONDS)[1] for future in futures]
    assert [sorted(found) for found in lines] == [[1, 2], [0], [0]]
    # As JAX's service does next, with SO_REUSEADDR; who connects from now on comes to it.
    there = ("127.0.0.1", rendezvous.port)
    with socket.create_server(there) as service, socket.create_connection(there), service.accept()[0]:
        pass
    lines[0][2].sendall(b"still there")
    assert lines[2][0].recv(100) == b"still there"


def test_missing_processes_are_named_to_everybody_present():
    found = Rendezvous(4, limit_seconds=4).all_of(hello(0), hello(2))
    words = (
        "2 of 4 processes did not come within 4 s: process 1 (slice 0, host 1), process 3 (slice 0, host 3); "
        "see whether their pods are scheduled, and whether their logs end before this"
    )
    assert [str(error) for error in found] == [words, words]
    assert {type(error) for error in found} == {errors.PeersMissingError}


def test_missing_lead_is_named():
    (error,) = Rendezvous(2, limit_seconds=0.5).all_of(hello(1))
    assert isinstance(error, errors.PeersMissingError)
    assert "process 0 (slice 0, host 0) at 127.0.0.1:" in str(error)
    assert "Connection refused" in str(error)


def test_different_configurations_are_named_by_host():
    found = Rendezvous(2).all_of(hello(0), hello(1, configuration="decaf"))
    words = (
        "process 1 on host host-1 and process 0 on host host-0 have different configurations (decaf and c0ffee); "
        "all processes of a run must be given the same TPUJOB_CONFIG"
    )
    assert [str(error) for error in found] == [words, words]
    assert {type(error) for error in found} == {errors.ConfigurationError}


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        ({"jax": "1.1", "flax": "2.0"}, "jax 1.1 and 1.0;"),
        ({"jax": "1.0"}, "flax none and 2.0;"),
        ({**VERSIONS, "optax": "3"}, "optax 3 and none;"),
        ({**VERSIONS, JOB_CODE: "1a"}, "the job's code (spec.code) 1a and none;"),
    ],
)
def test_different_versions_are_named(versions, words):
    for error in Rendezvous(2).all_of(hello(0), hello(1, versions=versions)):
        assert isinstance(error, errors.ConfigurationError)
        assert f"different versions: {words}" in str(error)


def test_process_of_another_attempt_is_kept_out():
    rendezvous = Rendezvous(2, limit_seconds=6)
    unidentified = rendezvous.come(hello(1, run="test/job 1.7"))
    lead, own = rendezvous.come(hello(0)), rendezvous.come(hello(1))
    assert lead.result(LIMIT_SECONDS)[0].nonce == own.result(LIMIT_SECONDS)[0].nonce
    assert "it belongs to test/job 1.0, this process to test/job 1.7" in str(unidentified.exception(LIMIT_SECONDS)) or (
        # It came when the membership was over already.
        "Connection refused" in str(unidentified.exception(LIMIT_SECONDS))
    )


def test_second_process_of_the_same_id_is_kept_out():
    rendezvous = Rendezvous(3, limit_seconds=4)
    found = rendezvous.all_of(hello(0), hello(1), hello(1, host="host-b"))
    assert "process 2 (slice 0, host 2)" in str(found[0])
    assert any("there is a process 1 already, on host host-" in str(error) for error in found[1:])


def test_process_that_left_may_come_again():
    rendezvous = Rendezvous(3)
    lead = rendezvous.come(hello(0))
    with rendezvous.connect() as connection:
        connection.sendall(to_line(vars(hello(1, host="host-old"))))
        assert connection.recv(100)
    again, other = rendezvous.come(hello(1)), rendezvous.come(hello(2))
    assert len({each.result(LIMIT_SECONDS)[0].nonce for each in (again, other, lead)}) == 1


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\n",
        b"[]\n",
        b'{"process_id": "1"}\n',
        b'{"process_id": 1, "run": 1, "host": 1, "configuration": 1, "versions": 1, "nonce": 1}\n',
        b"[" * 10_000 + b"\n",
        b"x" * 100_000,
        b"",
    ],
    ids=["http", "tls", "list", "fields", "types", "deep", "long", "silent"],
)
def test_strangers_do_not_disturb(noise):
    rendezvous = Rendezvous(2)
    lead = rendezvous.come(hello(0))
    with rendezvous.connect() as unidentified:
        unidentified.sendall(noise)
        assert rendezvous.come(hello(1)).result(LIMIT_SECONDS)[0].nonce == lead.result(LIMIT_SECONDS)[0].nonce


def test_many_silent_strangers_do_not_keep_a_process_out(monkeypatch):
    monkeypatch.setattr(line_server, "IDENTIFY_SECONDS", 0.2)
    rendezvous = Rendezvous(2)
    lead = rendezvous.come(hello(0))
    connections = [rendezvous.connect() for _ in range(line_server.MAX_UNIDENTIFIED + 5)]
    try:
        assert rendezvous.come(hello(1)).result(LIMIT_SECONDS)[0].nonce == lead.result(LIMIT_SECONDS)[0].nonce
    finally:
        for connection in connections:
            connection.close()


def test_port_that_is_taken_is_named():
    rendezvous = Rendezvous(1, limit_seconds=0.3)
    with socket.create_server(("127.0.0.1", rendezvous.port)):
        (error,) = rendezvous.all_of(hello(0))
    assert f"cannot listen on port {rendezvous.port}" in str(error)


@pytest.mark.parametrize(
    ("coordinator", "bound"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("10.0.0.7", None),
        ("job-w-0-0.job", None),
    ],
)
def test_loopback_coordinator_listens_on_loopback_only(coordinator, bound):
    assert ports.bind_host(coordinator) == bound
