"""A directory whose file system lacks what checkpoints need is refused before training, with what to use instead."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from tpujob_trainer.checkpoint.lock import Lock
from tpujob_trainer.values.errors import ConfigurationError


@pytest.mark.parametrize(
    ("owner", "call", "number", "lacking"),
    [
        (fcntl, "flock", errno.ENOSYS, r"locks, by which a second run is kept out \(flock\): Function not implemented"),
        (fcntl, "flock", errno.ENOLCK, r"locks, .*: No locks available"),
        (os, "fsync", errno.EINVAL, r"writes that are flushed to the disk \(fsync\): Invalid argument"),
        (Path, "rename", errno.EEXIST, r"a rename that replaces the file of that name: File exists"),
        (Path, "rename", errno.EXDEV, r"a rename that .*: Invalid cross-device link"),
    ],
)
def test_file_system_that_lacks_something_is_refused(tmp_path, monkeypatch, owner, call, number, lacking):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(owner, call, fail)
    with pytest.raises(ConfigurationError, match=f"{lacking}; use a local disk, NFS 4 or a gs"):
        Lock(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(("written", "replaced"))] == []


def test_full_disk_is_not_called_lacking(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        Lock(str(tmp_path))


def test_lock_leaves_one_file(tmp_path):
    Lock(str(tmp_path)).release()
    assert len(list(tmp_path.iterdir())) == 1
