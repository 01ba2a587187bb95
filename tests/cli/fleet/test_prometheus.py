"""`tpujob fleet` asks a Prometheus behind a proxy that wants a bearer token."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.fakes import Exchange, HttpServer
from tpujob.main import app

TOKEN = "canary7c2d"
EMPTY = b'{"status": "success", "data": {"result": []}}'


@contextlib.contextmanager
def guarded(**elsewhere: str) -> Iterator[tuple[HttpServer, list[str]]]:
    """Answers those who have the token, or sends them elsewhere; and the tokens that it was shown."""
    shown: list[str] = []

    def answer(exchange: Exchange) -> None:
        shown.append(exchange.headers.get("Authorization", ""))
        if elsewhere:
            exchange.reply(302, headers={"Location": elsewhere["to"]})
        elif shown[-1] == f"Bearer {TOKEN}":
            exchange.reply(200, EMPTY)
        else:
            exchange.reply(401, b"Unauthorized")

    with HttpServer(answer) as server:
        yield server, shown


def fleet(url: str, *options: str, stdin: str | None = None) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["fleet", "--prometheus", url, *options], input=stdin)
    return done.exit_code, done.output


@pytest.mark.parametrize("is_file", [True, False], ids=["a file", "standard input"])
def test_token_is_shown(tmp_path: Path, is_file: bool) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    with guarded() as (server, shown):
        file = str(tmp_path / "token") if is_file else "-"
        code, output = fleet(server.url, "--token-file", file, stdin=f"{TOKEN}\n")
    assert (code, "Prometheus has series of the operator for 0 of these" in output) == (0, True), output
    assert set(shown) == {f"Bearer {TOKEN}"}
    assert TOKEN not in output


@pytest.mark.parametrize(
    ("token", "code", "words"),
    [
        (None, 1, "401: Unauthorized; it asks for a token: --token-file"),
        ("stale", 1, "401: Unauthorized; it asks for another token: --token-file"),
        ("", 78, "--token-file: it does not hold a bearer token alone"),
        ("two words", 78, "--token-file: it does not hold a bearer token alone"),
        ("a\r\nHost: b", 78, "--token-file: it does not hold a bearer token alone"),
        ("\udcff", 78, "--token-file: it is no text"),
    ],
)
def test_token_that_does_not_fit_is_an_error(tmp_path: Path, token: str | None, code: int, words: str) -> None:
    (tmp_path / "token").write_text(token or "", errors="surrogateescape")
    options = [] if token is None else ["--token-file", str(tmp_path / "token")]
    with guarded() as (server, _):
        found, output = fleet(server.url, *options)
    assert found == code
    assert words in " ".join(output.split())


def test_token_is_not_shown_where_an_answer_redirects_to(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    with guarded() as (other, shown), guarded(to=other.url) as (server, _):
        code, _ = fleet(server.url, "--token-file", str(tmp_path / "token"))
    assert (code, set(shown)) == (1, {""})


def test_token_without_prometheus_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    done = CliRunner().invoke(app, ["fleet", "--token-file", str(tmp_path / "token")])
    assert (done.exit_code, "go with --prometheus" in done.output) == (78, True)
