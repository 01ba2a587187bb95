"""Whether anybody answers where a bucket is, with real sockets of this machine."""

import socket
from collections.abc import Iterator

import pytest

from tpujob_trainer.storage import reachability


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where the bucket is said to be, and nobody listens yet."""
    for name in reachability.PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", f"http://127.0.0.1:{held.getsockname()[1]}")
        yield held


def test_what_hinders_is_said_at_the_first_failure(silent: socket.socket) -> None:
    notices: list[str | None] = []
    now, port = [0.0], silent.getsockname()[1]

    def wait(seconds: float) -> None:
        now[0] += seconds

    with pytest.raises(ConnectionError, match=f"127.0.0.1:{port}: Connection refused"):
        reachability.wait_until_reachable(
            "gs://bucket/run", notice=notices.append, limit_seconds=3, wait=wait, clock=lambda: now[0]
        )
    assert len(notices) == 3
    assert notices[0] == f"gs://bucket/run cannot be reached for 0 s: 127.0.0.1:{port}: Connection refused"


def test_the_notice_is_taken_back_when_somebody_answers(silent: socket.socket) -> None:
    notices: list[str | None] = []
    reachability.wait_until_reachable("gs://bucket/run", notice=notices.append, wait=lambda seconds: silent.listen())
    assert len(notices) == 2
    assert notices[1] is None


@pytest.mark.parametrize(
    ("url", "variables", "server"),
    [
        ("/data/run", {}, None),
        ("s3://bucket/run", {}, None),
        ("gs://bucket/run", {}, ("storage.googleapis.com", 443)),
        ("gs://bucket/run", {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:7"}, ("127.0.0.1", 7)),
        ("http://files.local/a", {}, ("files.local", 80)),
        ("gs://bucket/run", {"HTTPS_PROXY": "http://proxy:3128"}, None),
    ],
    ids=["a path", "another storage", "a bucket", "an emulator", "a web server", "behind a proxy"],
)
def test_the_server_of_a_url(
    url: str, variables: dict[str, str], server: tuple[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TENSORSTORE_GCS_HTTP_URL", "STORAGE_EMULATOR_HOST", *reachability.PROXY_VARIABLES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert reachability.server_of(url) == server
