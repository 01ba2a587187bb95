"""A directory that other processes change, or that cannot be read."""

import resource

import pytest

from tpujob_trainer.storage.directory import Directory
from tpujob_trainer.values.errors import TrainerError


def test_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(tmp_path):
    directory = Directory(str(tmp_path))
    directory.write("a", b"1")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(
            TrainerError, match=r"cannot be reached at present \(Too many open files\); another attempt"
        ):
            directory.files("")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [file.name for file in directory.files("")] == ["a"]
    assert directory.files("gone") == []


def test_file_that_another_process_has_removed_is_removed(tmp_path):
    directory = Directory(str(tmp_path))
    directory.write("a", b"1")
    directory.remove("a")
    directory.remove("a")
    assert directory.files("") == []
