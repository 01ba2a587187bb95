"""Logs of hosts whose connection breaks."""

from collections.abc import Iterator

import pytest
from urllib3.exceptions import ProtocolError

from tpujob.cluster import logs
from tpujob.cluster.client import Cluster

POD = {"metadata": {"name": "llama-w-0-0"}, "spec": {"containers": [{"name": "train"}]}}
"""Slice 0, host 0."""


class Broken:
    """An answer whose connection breaks after one line."""

    def stream(self) -> Iterator[bytes]:
        yield b"T1 step 1\n"
        raise ProtocolError("Connection broken")

    def release_conn(self) -> None:
        pass


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(Cluster, "_send", lambda *_, **__: Broken())
    return Cluster(None, "default")


WORDS = "(the log ends here: the connection to the cluster broke: Connection broken; ask again)"


def test_a_log_that_breaks_off_says_so(cluster) -> None:
    assert list(logs.read(cluster, POD, tail=None)) == ["T1 step 1", f"- {WORDS}"]


def test_a_followed_log_that_breaks_off_says_so(cluster) -> None:
    lines = list(logs.follow(cluster, [POD], tail=None))
    assert lines == ["slice 0 host 0 | T1 step 1", f"slice 0 host 0 | {WORDS}"]
