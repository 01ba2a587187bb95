"""Launcher 0 has a connection to each host: more than 1,024 descriptors."""

import os
import resource
from collections.abc import Iterator

import pytest

from tpujob_launcher.supervise.signals import SignalQueue


@pytest.fixture
def limit() -> Iterator[int]:
    """The hard limit; the soft one is as before afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
