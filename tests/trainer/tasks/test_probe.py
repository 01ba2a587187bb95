"""Whether a pod can use a checkpoint directory: what is left there, and which of the four is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tpujob_contract import ExitCode
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.tasks.probe import try_bucket
from tpujob_trainer.values.errors import NotFoundError, TrainerError

BLOCK = {"task": "probe", "model": {"preset": "tiny"}, "data": {"path": "/dev/null", "tokenizer": "bytes"}}


class Refusing:
    """A directory that refuses some verbs, as a role of a bucket does that lacks their permissions."""

    def __init__(self, folder: Path, *refused: str, error: OSError) -> None:
        self._bucket = open_bucket(folder)
        self.url = self._bucket.url
        self._refused, self._error = refused, error

    def __getattr__(self, verb):
        if verb not in self._refused:
            return getattr(self._bucket, verb)
        raise self._error


def objects(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("refused", "word", "left"),
    [(["create"], "write", 0), (["names"], "list", 0), (["read"], "read", 0), (["delete"], "delete", 1)],
    ids=["write", "list", "read", "delete"],
)
def test_the_permission_that_is_missing_is_named(tmp_path, refused, word, left):
    bucket = Refusing(tmp_path, *refused, error=PermissionError(13, "Forbidden"))
    with pytest.raises(NotFoundError, match=rf"spec.checkpointDir: .*: cannot {word} tpujob-probe-.*grant its service"):
        try_bucket(bucket)
    assert len(objects(tmp_path)) == left


def test_first_refusal_is_told_where_nothing_is_allowed_but_writing(tmp_path):
    bucket = Refusing(tmp_path, "names", "read", "delete", error=PermissionError(13, "Forbidden"))
    with pytest.raises(NotFoundError, match="cannot list"):
        try_bucket(bucket)


def test_storage_that_fails_is_no_missing_permission(tmp_path):
    bucket = Refusing(tmp_path, "read", error=TimeoutError("deadline"))
    with pytest.raises(TrainerError, match="cannot read") as told:
        try_bucket(bucket)
    assert not isinstance(told.value, NotFoundError)


@pytest.mark.parametrize(
    ("directory", "words"),
    [("checkpoints", "written to {}, listed, read and deleted"), (None, "This image starts")],
    ids=["a directory", "none"],
)
def test_the_trainer_tries_its_directory_and_leaves_nothing(tmp_path, directory, words):
    place = str(tmp_path / directory) if directory else ""
    environ = {"TPUJOB_CONFIG": json.dumps(BLOCK), "TPUJOB_CHECKPOINT_DIR": place, "PATH": "/usr/bin"}
    done = subprocess.run([sys.executable, "-m", "tpujob_trainer"], env=environ, capture_output=True, text=True)
    assert done.returncode == ExitCode.FINISHED, done.stderr
    assert words.format(place) in done.stderr
    assert objects(tmp_path) == []


def test_a_file_in_the_place_of_the_directory_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainerError, match="cannot write"):
        try_bucket(open_bucket(tmp_path / "file"))
