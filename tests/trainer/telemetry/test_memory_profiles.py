"""Profiles of device memory between steps: what is written, and what stays."""

import gzip
import threading
from pathlib import Path

import jax.numpy as jnp
import pytest

from tpujob_trainer.storage import open_bucket
from tpujob_trainer.telemetry import profiler
from tpujob_trainer.telemetry.profiler import MemoryProfiles

FOLDER = Path("profiles") / "memory-by-step"


def profiled(hook: MemoryProfiles, *steps: int) -> None:
    for step in steps:
        hook.run(step, None, lambda: None)
        hook.close()


def test_newest_profiles_stay(tmp_path: Path) -> None:
    held = jnp.ones((1000, 1000)).block_until_ready()
    others = MemoryProfiles(str(tmp_path), process_id=1, every_steps=5, keep=1)
    profiled(others, 5)
    profiled(MemoryProfiles(str(tmp_path), process_id=11, every_steps=5, keep=2), 5, 95, 100, 1005)
    found = {path.relative_to(tmp_path / FOLDER).as_posix() for path in (tmp_path / FOLDER).rglob("*.gz")}
    assert found == {
        "process-1/000000000005.pb.gz",
        "process-11/000000000100.pb.gz",
        "process-11/000000001005.pb.gz",
    }
    # The names of what holds memory are strings of pprof's table: buffers, and their devices.
    [content] = [gzip.decompress((tmp_path / FOLDER / name).read_bytes()) for name in found if "process-1/" in name]
    assert b"buffer" in content
    assert held.nbytes == 4_000_000


def test_storage_that_fails_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    profiled(MemoryProfiles(str(tmp_path / "file"), process_id=0, every_steps=1, keep=1), 1)
    assert "Memory profile after step 1: not written" in caplog.text


def test_training_never_waits_for_storage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage_answers = threading.Event()

    def slow(directory: str) -> object:
        storage_answers.wait()
        return open_bucket(directory)

    monkeypatch.setattr(profiler, "open_bucket", slow)
    hook = MemoryProfiles(str(tmp_path), process_id=0, every_steps=1, keep=9)
    hook.run(1, None, lambda: None)
    hook.run(2, None, lambda: None)
    storage_answers.set()
    hook.close()
    profiled(hook, 3)
    assert [path.name for path in sorted(tmp_path.rglob("*.gz"))] == ["000000000001.pb.gz", "000000000003.pb.gz"]
    assert "Memory profile after step 2: left out" in caplog.text
