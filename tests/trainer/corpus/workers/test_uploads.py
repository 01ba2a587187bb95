"""Uploads of a unit's files, where the storage does not do what it should."""

import threading
from pathlib import Path

import gcsfs
import pytest

from tests.fakes import Exchange, HttpServer
from tpujob_trainer.corpus.workers.claims import Lease
from tpujob_trainer.corpus.workers.uploads import Uploads
from tpujob_trainer.storage import directory
from tpujob_trainer.storage.retrying import Retrying, StorageFailedError


def test_server_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()
    asked = []

    def never(exchange: Exchange) -> None:
        asked.append(exchange.command)
        is_over.wait(60)

    with HttpServer(never) as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        monkeypatch.setattr(directory, "REQUEST_SECONDS", 0.2)
        gcsfs.GCSFileSystem.clear_instance_cache()
        try:
            file = tmp_path / "a.parquet"
            file.write_bytes(b"x" * 100)
            found = Uploads("gs://bucket/run", Retrying(limit_seconds=2))
            with pytest.raises(StorageFailedError, match=r"out/00000007-t-000\.parquet .*timeout for"):
                found.upload(Lease(7, "t", b""), 0, file, rows=1)
        finally:
            is_over.set()
            gcsfs.GCSFileSystem.clear_instance_cache()
    assert len(asked) > 1, "it was tried again"
    assert file.exists(), "what was not uploaded is kept"
