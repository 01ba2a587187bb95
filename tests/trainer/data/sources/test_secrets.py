"""A signed address is read, and its signature is in no manifest, log or message; a password is refused."""

import logging
from urllib.parse import urlsplit

import pytest

from tests.trainer.data.data_files import WRITERS
from tests.trainer.data.web_folder import web_folder
from tpujob_trainer.data import DataConfig, make_manifest
from tpujob_trainer.data.manifest.reader import UnitReader
from tpujob_trainer.data.manifest.scan import verify_unchanged
from tpujob_trainer.data.manifest.table import FILE_NAME, read_manifest, write_manifest
from tpujob_trainer.values.errors import ConfigurationError, TrainerError
from tpujob_trainer.values.from_mapping import parse
from tpujob_trainer.values.programs import RedactingFormatter

CANARY = "canary7f3a"
QUERY = f"?X-Goog-Signature={CANARY}/x&t=1"
TEXTS = [f"row {number}" for number in range(30)]


@pytest.fixture
def server(tmp_path):
    """A web server that answers only with the signature."""
    with web_folder(tmp_path, refuses=lambda path: f"?{urlsplit(path).query}" != QUERY) as url:
        yield url


def test_signed_address_is_read_and_kept_nowhere(server, tmp_path, caplog):
    caplog.set_level(logging.DEBUG, "tpujob_trainer")
    WRITERS["a.jsonl.gz"](tmp_path / "a.jsonl.gz", TEXTS)
    config = DataConfig(path=f"{server}/a.jsonl.gz{QUERY}")
    write_manifest(make_manifest(config), str(tmp_path / "run"))
    manifest = read_manifest(str(tmp_path / "run"), config)
    assert manifest is not None
    verify_unchanged(manifest, config)

    rows = UnitReader(manifest).read(0).column.to_pylist()

    assert [row.decode() if isinstance(row, bytes) else row for row in rows] == TEXTS
    assert CANARY.encode() not in (tmp_path / "run" / FILE_NAME).read_bytes()
    assert CANARY not in repr(manifest)
    formatter = RedactingFormatter("%(message)s")
    assert not any(CANARY in formatter.format(record) for record in caplog.records)


def test_refused_signature_is_not_in_the_message(server):
    with pytest.raises(TrainerError) as refused:
        make_manifest(DataConfig(path=f"{server}/a.txt?X-Goog-Signature={CANARY}"))
    assert CANARY not in str(refused.value)
    assert "a.txt" in str(refused.value)


@pytest.mark.parametrize("key", ["path", "tokenizer"])
def test_user_and_password_are_refused_by_the_field(key):
    block = {"path": "a.txt", key: f"http://user:{CANARY}@host/file.txt"}
    with pytest.raises(ConfigurationError, match=rf"data\.{key}: .*holds a user or a password") as refused:
        parse(DataConfig, block, "spec.trainer.data")
    assert CANARY not in str(refused.value)


def test_traceback_of_a_library_is_logged_without_secrets():
    error = OSError(f"403, url='https://host/a?sig={CANARY}'")
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), (type(error), error, None))
    assert CANARY not in RedactingFormatter("%(message)s").format(record)
