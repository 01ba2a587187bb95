"""An archive on Cloud Storage, as its JSON API and the metadata server of a machine answer."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from tests.fakes import Exchange, HttpServer
from tpujob_contract import ExitCode
from tpujob_launcher.code import install
from tpujob_launcher.code.archive import CodeRefused
from tpujob_launcher.code.download import download

CONTENT = b"archive"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Google:
    """What storage and the metadata server, in one, answer and were asked."""

    answers: ClassVar[list[int]]
    asked: ClassVar[list[tuple[str, str | None]]]
    token: ClassVar[bytes] = json.dumps({"access_token": "of-the-job"}).encode()
    sent_bytes: ClassVar[list[int]] = []
    """After so many bytes the connection ends, answer by answer; further ones are whole."""

    @classmethod
    def answer(cls, exchange: Exchange) -> None:
        cls.asked.append((exchange.path, exchange.headers["Authorization"]))
        if "/token" in exchange.path:
            exchange.reply(200, cls.token)
        else:
            exchange.reply(cls.answers.pop(0), CONTENT, sent_bytes=cls.sent_bytes.pop(0) if cls.sent_bytes else None)


@contextmanager
def google(*answers: int) -> Iterator[str]:
    """Its address; storage answers with these statuses, one after the other."""
    Google.answers, Google.asked = list(answers), []
    with HttpServer(Google.answer) as server:
        yield server.host


def test_reads_as_the_identity_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with google(200) as address:
        monkeypatch.setattr("tpujob_launcher.code.download.ENDPOINT", f"http://{address}")
        download("gs://bucket/a b/c.tar.gz", DIGEST, tmp_path / "c", environ={"GCE_METADATA_HOST": address})
    assert (tmp_path / "c").read_bytes() == CONTENT
    assert Google.asked[-1] == ("/storage/v1/b/bucket/o/a%20b%2Fc.tar.gz?alt=media", "Bearer of-the-job")


@pytest.mark.parametrize("token", [b"", b'{"access_to', b"{}", b"[]"])
def test_identity_without_a_token_is_tried_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token: bytes) -> None:
    monkeypatch.setattr(Google, "token", token)
    with google() as address, pytest.raises(OSError, match="answers with no token"):
        download("gs://b/c", DIGEST, tmp_path / "c", environ={"GCE_METADATA_HOST": address}, pause_seconds=0)


@pytest.mark.parametrize(
    ("status", "words"), [(404, "is not there"), (403, "no permission to read"), (401, "no permission to read")]
)
def test_what_storage_refuses_is_not_asked_again(tmp_path: Path, status: int, words: str) -> None:
    with google(status) as address, pytest.raises(CodeRefused, match=f"gs://b/c.* {words}|{words} gs://b/c") as refusal:
        download("gs://b/c", DIGEST, tmp_path / "c", environ={"STORAGE_EMULATOR_HOST": address})
    assert refusal.value.exit_code == ExitCode.NOT_FOUND
    assert len(Google.asked) == 1


def test_storage_that_is_busy_is_asked_again(tmp_path: Path) -> None:
    with google(503, 429, 200) as address:
        download("gs://b/c", DIGEST, tmp_path / "c", environ={"STORAGE_EMULATOR_HOST": address}, pause_seconds=0)
    assert (tmp_path / "c").read_bytes() == CONTENT


def test_an_answer_that_is_cut_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Google, "sent_bytes", [3, 0])
    with google(200, 200, 200) as address:
        download("gs://b/c", DIGEST, tmp_path / "c", environ={"STORAGE_EMULATOR_HOST": address}, pause_seconds=0)
    assert (tmp_path / "c").read_bytes() == CONTENT


def test_storage_that_always_cuts_its_answers_may_be_tried_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Google, "sent_bytes", [3] * 5)
    with google(*[200] * 5) as address, pytest.raises(OSError, match="gs://b/c: IncompleteRead"):
        download("gs://b/c", DIGEST, tmp_path / "c", environ={"STORAGE_EMULATOR_HOST": address}, pause_seconds=0)


def test_storage_out_of_reach_may_be_tried_later(tmp_path: Path) -> None:
    with google(*[503] * 5) as address, pytest.raises(OSError, match="gs://b/c: 503"):
        download("gs://b/c", DIGEST, tmp_path / "c", environ={"STORAGE_EMULATOR_HOST": address}, pause_seconds=0)


def test_storage_that_is_away_longer_is_waited_for_at_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the program of the init container: it unpacks no archive of these bytes, which it says once it has them."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    for attempt, answers, code in (("0", [503] * 5, 1), ("2", [*[503] * 7, 200], 78)):
        monkeypatch.setenv("TPUJOB_ATTEMPT", attempt)
        with google(*answers) as address:
            monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
            assert install.main(["gs://b/c", DIGEST, str(tmp_path / "code")]) == code
