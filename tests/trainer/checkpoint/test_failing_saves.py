"""Saves that fail: what is kept, what is said, and how long they are tried again."""

import contextlib
import os
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer.checkpoint import attempts
from tests.trainer.checkpoint.attempts import LIMIT_SECONDS, Told, tree
from tpujob_trainer.checkpoint import layout, ownership
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.retention import Listener, Retention, Settings
from tpujob_trainer.values import errors

pytestmark = attempts.LATE_FAILURES


def noise_of(columns):
    """Arrays that no codec makes smaller."""
    return {"w": jnp.asarray(np.random.default_rng(0).normal(size=(1000, columns)), jnp.float32)}


NOISE = noise_of(100)


class FullDisk:
    """Files of this process may not grow beyond a size: writing fails as on a full disk, for the superuser too."""

    def __enter__(self):
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, self.before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only the superuser can mount a small file system")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk_keeps_the_last_commit_and_none_of_the_remains(small_disk, runtime):
    heard = []
    listener = Listener(failed=lambda step, why: heard.append((step, why)))
    checkpoints = Checkpoints(str(small_disk), Settings(retention=Retention(last=5)), runtime, listener=listener)
    noise = noise_of(800)
    for step in (1, 2):
        checkpoints.save(step, noise)
        assert checkpoints.finish(LIMIT_SECONDS)
    for step in (3, 4):
        checkpoints.save(step, noise)
        assert not checkpoints.finish(LIMIT_SECONDS)
        assert checkpoints.problem == f"the disk of {small_disk} is full"
        checkpoints.close()
        assert [path.name for path in sorted((small_disk / "steps").iterdir())] == ["1", "2"]
    assert heard == [(step, f"the disk of {small_disk} is full") for step in (3, 4)]
    assert shutil.disk_usage(small_disk).free > 10**6, "two checkpoints of 3 MB, and nothing else"

    # Somebody makes room, and the run goes on as if nothing had been.
    layout.delete(small_disk, 1)
    assert checkpoints.save(5, noise)
    assert checkpoints.finish(LIMIT_SECONDS)
    assert (checkpoints.failing_since, checkpoints.problem) == (None, "")
    checkpoints.close()
    assert layout.committed(small_disk) == [5, 2]


def test_attempt_without_room_for_a_checkpoint_ends_before_it_works(small_disk, runtime):
    def begin():
        ownership.claim(str(small_disk), owner="default/a", adopt=None, runtime=runtime).close()

    begin()
    checkpoints = Checkpoints(str(small_disk), Settings(retention=Retention(last=5)), runtime)
    checkpoints.save(1, noise_of(800))
    assert checkpoints.finish(LIMIT_SECONDS)
    checkpoints.close()
    remains = small_disk / "trash" / "2-0badcafe"
    remains.mkdir(parents=True)
    (remains / "part").write_bytes(bytes(3 << 20))
    (small_disk / "others").write_bytes(bytes(1 << 20))
    begin()  # what an interrupted save has left is deleted
    (remains / "part").rename(small_disk / "theirs")
    said = r"^spec\.checkpointDir: the disk of \S+ has room for \d\.\d MB, and the checkpoint of step 1 takes 3\.\d MB;"
    with pytest.raises(errors.TrainerError, match=said) as refusal:
        begin()
    assert refusal.value.exit_code == 1
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    with pytest.raises(errors.TrainerError, match=r"the disk of \S+ is full \(No space left on device\); make room"):
        begin()
    for name in ("filler", "theirs"):
        (small_disk / name).unlink()
    begin()


def test_training_goes_on_while_saves_fail_and_ends_when_the_last_commit_is_too_old(tmp_path, runtime, caplog):
    heard = []

    def opened(fail_after_seconds):
        return Checkpoints(
            str(tmp_path),
            Settings(retention=Retention(last=3), fail_after_seconds=fail_after_seconds),
            runtime,
            listener=Listener(failed=lambda step, why: heard.append(step)),
        )

    checkpoints = opened(3600)
    begun = time.time()
    with FullDisk():
        for step in (1, 2):
            checkpoints.save(step, NOISE)
            assert not checkpoints.finish(LIMIT_SECONDS)
        since = checkpoints.failing_since
        assert since is not None
        assert begun - 1 <= since <= time.time()
        strict = opened(0)
        strict.save(3, NOISE)
        with pytest.raises(
            errors.TrainerError, match=r"spec.checkpointDir: saves to .* nothing was committed for \d+ s"
        ):
            strict.finish(LIMIT_SECONDS)
    assert heard == [1, 2, 3]
    assert "The checkpoint of step 2 failed" in caplog.text
    assert checkpoints.save(4, NOISE)
    assert checkpoints.finish(LIMIT_SECONDS)
    assert checkpoints.failing_since is None
    checkpoints.close()


def test_last_save_is_tried_again_until_it_is_committed(tmp_path, runtime):
    told = Told()
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime, listener=told)
    disk = FullDisk()
    disk.__enter__()

    def make_room():
        if ("failed", 7) in told.lines:
            disk.__exit__()

    checkpoints.save(7, NOISE)
    assert checkpoints.commit(7, NOISE, tick=make_room)
    assert told.lines[:2] == [("saved", 7), ("failed", 7)]
    assert told.lines[-2:] == [("saved", 7), ("committed", 7)]
    checkpoints.close()
    assert layout.committed(tmp_path) == [7]


def test_last_save_is_tried_again_until_saves_have_failed_for_too_long(tmp_path, runtime):
    told = Told()
    settings = Settings(retention=Retention(last=3), fail_after_seconds=1)
    checkpoints = Checkpoints(str(tmp_path), settings, runtime, listener=told)
    with FullDisk():
        checkpoints.save(7, NOISE)
        with pytest.raises(errors.TrainerError, match=r"saves to .* fail, and nothing was committed for \d+ s"):
            checkpoints.commit(7, NOISE)
    assert told.lines.count(("failed", 7)) >= 2


def test_last_save_is_not_tried_again_without_the_time_for_it(tmp_path, runtime):
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime)
    left = iter([30.0] * 3)
    with FullDisk():
        checkpoints.save(7, NOISE)
        assert not checkpoints.commit(7, NOISE, seconds_left=lambda: next(left, 0.0))
    assert layout.committed(tmp_path) == []


def test_last_checkpoint_that_was_deleted_is_saved_again(tmp_path, runtime, caplog):
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime)
    checkpoints.save(7, tree(7))
    assert checkpoints.finish(LIMIT_SECONDS)
    shutil.rmtree(tmp_path / "steps")
    assert checkpoints.commit(7, tree(7))
    assert f"The checkpoint of step 7 is gone from {tmp_path}" in caplog.text
    assert layout.committed(tmp_path) == [7]
    checkpoints.close()


class Refused(ownership.Claim):
    """A claim on a directory that was lost before the first save."""

    def confirm(self) -> None:
        raise errors.TrainerError("another run has the directory")


def test_refused_save_leaves_no_thread_that_the_program_waits_for(tmp_path, runtime):
    before = set(threading.enumerate())
    told = Told()
    checkpoints = Checkpoints(
        str(tmp_path), Settings(retention=Retention(last=3)), runtime, listener=told, claim=Refused(str(tmp_path))
    )
    checkpoints.save(1, tree(1))
    assert not checkpoints.finish(LIMIT_SECONDS)
    assert checkpoints.problem == "TrainerError: another run has the directory"
    checkpoints.close()
    for thread in set(threading.enumerate()) - before:
        if not thread.daemon and not thread.name.startswith(("asyncio", "ThreadPool", "ts_", "d2h")):
            # Orbax' own join raises what the thread has ended with.
            threading.Thread.join(thread, LIMIT_SECONDS)
            assert not thread.is_alive(), thread.name
    assert layout.committed(tmp_path) == []
