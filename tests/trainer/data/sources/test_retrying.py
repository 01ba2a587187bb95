import email.utils
import errno
import socket

import pytest

from tests.fakes import Clock
from tpujob_trainer.storage.read_meter import ReadMeter
from tpujob_trainer.storage.retrying import IncompleteReadError, Retrying, cause_of, retry_after_seconds
from tpujob_trainer.values.errors import TrainerError


class StatusError(Exception):
    """As aiohttp keeps them."""

    def __init__(self, status, headers=None):
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers or {}


class ClientPayloadError(Exception):
    """By its name aiohttp's."""


def retrying(clock, *, chance=0.0, limit=300.0, meter=None):
    return Retrying(
        limit_seconds=limit, clock=clock, wait=clock.wait, chance=lambda: chance, meter=meter or ReadMeter(clock)
    )


def failing(errors, result="read"):
    left = list(errors)

    def call():
        if left:
            raise left.pop(0)
        return result

    return call


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (StatusError(429), "rate_limited"),
        (StatusError(503), "unavailable"),
        (StatusError(500), "unavailable"),
        (StatusError(408), "timeout"),
        (StatusError(404), None),
        (StatusError(403), None),
        (StatusError("503"), "unavailable"),
        (ConnectionResetError("by peer"), "reset"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "reset"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), "reset"),
        (TimeoutError("late"), "timeout"),
        (ClientPayloadError("half"), "truncated"),
        (IncompleteReadError("half"), "truncated"),
        (FileNotFoundError("gone"), None),
        (PermissionError("no"), None),
        (ValueError("not of storage"), None),
        (TrainerError("said already"), None),
    ],
    ids=repr,
)
def test_cause_is_told_by_the_error(error, cause):
    assert cause_of(error) == cause


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "17"}, 17.0),
        ({"Retry-After": email.utils.formatdate(1060, usegmt=True)}, 60.0),
        ({"RateLimit": '"api";r=0;t=55'}, 55.0),
        ({"RateLimit": '"api";r=3;t=55'}, None),
        ({}, None),
    ],
    ids=["seconds", "date", "hub", "hub, some left", "none"],
)
def test_wish_of_the_storage_is_read(headers, seconds):
    wrapped = OSError("wrapped")
    wrapped.__cause__ = StatusError(429, headers)

    assert retry_after_seconds(wrapped, now=lambda: 1000.0) == seconds


def test_delays_grow_up_to_a_limit():
    clock = Clock()

    assert retrying(clock)("it", failing([StatusError(503)] * 9)) == "read"

    assert clock.waited == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_delays_are_spread():
    clock = Clock()

    retrying(clock, chance=1.0)("it", failing([StatusError(503)] * 3))

    assert clock.waited == [0.25, 0.5, 1.0]


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
def test_never_sooner_than_asked(chance):
    clock = Clock()

    retrying(clock, chance=chance)("it", failing([StatusError(429, {"Retry-After": "20"})]))

    assert 20 <= clock.now - 1000 <= 31


def test_other_reads_wait_too():
    clock = Clock()
    together = retrying(clock)
    began: list[float] = []

    def first():
        if not began:
            began.append(clock.now)
            raise StatusError(429, {"Retry-After": "20"})

    gate_seen: list[bool] = []
    original_wait = clock.wait

    def wait(seconds):
        # While the first one waits, another thread wants to read.
        if not gate_seen:
            gate_seen.append(True)
            together("another", lambda: began.append(clock.now))
        original_wait(seconds)

    together._wait = wait
    together("it", first)

    assert began == [1000.0, 1020.0]


def test_given_up_after_the_limit():
    clock, calls = Clock(), []

    def call():
        calls.append(clock.now)
        raise StatusError(503)

    with pytest.raises(
        TrainerError, match=r"gs://b/x could not be read \(unavailable for \d+ s, \d+ tries\).*status 503"
    ):
        retrying(clock, limit=60)("gs://b/x", call)

    assert clock.now - 1000 <= 60
    assert len(calls) == 7


def test_wish_beyond_the_limit_is_not_waited_for():
    clock = Clock()

    with pytest.raises(TrainerError, match="rate_limited for 0 s, 1 try"):
        retrying(clock, limit=60)("it", failing([StatusError(429, {"Retry-After": "3600"})]))

    assert clock.waited == []


def test_what_cannot_be_mended_is_raised_at_once():
    clock = Clock()

    with pytest.raises(FileNotFoundError):
        retrying(clock)("it", failing([FileNotFoundError("it")]))

    assert clock.waited == []


def test_trouble_is_told_while_it_lasts():
    clock = Clock()
    meter = ReadMeter(clock)
    told = []
    errors = [StatusError(503)] * 5

    def call():
        told.append(meter.slow_message())
        if errors:
            raise errors.pop()

    retrying(clock, meter=meter)("gs://b/x", call)

    assert told[:3] == [None] * 3
    assert told[-1] == "reading gs://b/x fails since 16 s, 5 tries: StatusError: status 503"
    assert meter.slow_message() is None
    assert meter.retries == {"unavailable": 5}


def test_read_that_hangs_is_told():
    clock = Clock()
    meter = ReadMeter(clock)

    with meter.request("gs://b/x"):
        assert meter.slow_message() is None
        clock.now += 42
        assert meter.slow_message() == "reading gs://b/x has taken 42 s by now"
    assert meter.slow_message() is None


def test_hosts_come_back_at_different_moments():
    """Told the same at the same moment, 32 hosts are spread over seconds."""
    waited = []
    for _ in range(32):
        clock = Clock()
        patient = Retrying(clock=clock, wait=clock.wait, meter=ReadMeter(clock))
        patient("it", failing([StatusError(429, {"Retry-After": "10"})]))
        waited.append(clock.now - 1000)

    assert all(10 <= seconds <= 15 for seconds in waited)
    assert max(waited) - min(waited) > 2
