"""One process with one device and real files; several processes are in tests/multiprocess."""

import dataclasses
import json
import os
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tpujob_trainer import errors
from tpujob_trainer.checkpoint import layout, restore
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.checkpoint.listener import Listener
from tpujob_trainer.checkpoint.retention import Retention
from tpujob_trainer.checkpoint.settings import Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime

# Of two writes of TensorStore that fail, the second may outlive the event loop in which Orbax waited for both, and then
# complains in whatever test runs.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*Event loop is closed:pytest.PytestUnraisableExceptionWarning")

LIMIT_SECONDS = 120.0
OPTIMIZER = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))


@pytest.fixture
def runtime():
    return new_runtime()


def new_runtime():
    """Of a new attempt: what was said in the coordination service before is gone."""
    return Runtime(process_id=0, num_processes=1, attempt_id="0.0-x", host="here", coordination=kv_store.alone())


def tree(value, width=4):
    parameters = {
        "layers": [{"w": jnp.full((width, 2), value, jnp.float32)}],
        "norm": jnp.full((), value, jnp.bfloat16),
    }
    return {
        "model": parameters,
        "optimizer": OPTIMIZER.init(parameters),
        "step": jnp.int32(value),
        "data": np.arange(6, dtype=np.int64).reshape(2, 3) + value,
    }


def abstract(width=4):
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree(0, width))


class Told(Listener):
    """What the listener heard, in order."""

    def __init__(self):
        self.lines: list[tuple] = []
        super().__init__(
            saved=lambda step, seconds: self.lines.append(("saved", step)),
            committed=lambda commit, seconds: self.lines.append(("committed", commit.step)),
            failed=lambda step, why: self.lines.append(("failed", step)),
            passed_over=lambda step, why: self.lines.append(("passed over", step)),
        )


def run(directory, *, steps=(), keep=3, width=4, told=None):
    """One attempt that saves at the given steps; what it restored before."""
    checkpoints = Checkpoints(str(directory), Settings(retention=Retention(last=keep)), new_runtime(), listener=told)
    restored = checkpoints.restore(abstract(width))
    for step in steps:
        assert checkpoints.save(step, tree(step, width))
    assert checkpoints.finish(LIMIT_SECONDS)
    checkpoints.close()
    return restored


def damage(directory, step):
    """Takes away the list of leaves. Lost bytes of leaves are in tests/multiprocess.

    TensorStore's reads outlive the event loop in which one of them failed, and complain in whatever test runs then.
    """
    (directory / "steps" / str(step) / "state" / "_METADATA").unlink()


def test_nothing_there_is_none(tmp_path):
    assert run(tmp_path) is None


def test_what_was_saved_is_restored(tmp_path):
    run(tmp_path, steps=[7])
    step, found = run(tmp_path)
    assert step == 7
    jax.tree.map(np.testing.assert_array_equal, found, tree(7))
    assert jax.tree.map(lambda x: x.dtype, found) == jax.tree.map(lambda x: jnp.asarray(x).dtype, tree(7))


def test_newest_is_restored_and_old_ones_go(tmp_path):
    run(tmp_path, steps=[1, 2, 10, 30], keep=2)
    assert layout.committed(tmp_path) == [30, 10]
    restored = run(tmp_path)
    assert restored is not None
    assert restored[0] == 30


def test_commit_is_noticed_without_waiting(tmp_path, runtime):
    told = Told()
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime, listener=told)
    begun = time.time()
    checkpoints.save(5, tree(5))
    deadline = time.monotonic() + LIMIT_SECONDS
    while checkpoints.committed_step is None and time.monotonic() < deadline:
        checkpoints.poll()
    assert checkpoints.committed_step == 5
    assert checkpoints.committed_time is not None
    assert begun <= checkpoints.committed_time <= time.time()
    assert told.lines == [("saved", 5), ("committed", 5)]
    checkpoints.close()


def test_hint_names_the_newest_commit(tmp_path):
    run(tmp_path, steps=[3, 6])
    hint = json.loads((tmp_path / "latest.json").read_text())
    assert (hint["step"], hint["path"]) == (6, str(tmp_path / "steps" / "6"))
    assert abs(hint["time"] - time.time()) < 60


def test_restored_commit_is_known_with_its_time(tmp_path, runtime):
    begun = time.time()
    run(tmp_path, steps=[3])
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime)
    checkpoints.restore(abstract())
    assert checkpoints.committed_step == 3
    assert begun - 1 <= (checkpoints.committed_time or 0) <= time.time()
    checkpoints.close()


def test_step_that_is_saved_already_is_left_alone(tmp_path, runtime):
    run(tmp_path, steps=[3])
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime)
    checkpoints.restore(abstract())
    assert not checkpoints.save(3, tree(4))
    assert checkpoints.finish(0)
    checkpoints.close()


def test_step_without_marker_is_no_checkpoint(tmp_path):
    run(tmp_path, steps=[3, 6])
    (tmp_path / "steps" / "6" / "commit_success.txt").unlink()
    restored = run(tmp_path)
    assert restored is not None
    assert restored[0] == 3


def test_damaged_checkpoint_is_set_aside_for_the_one_before(tmp_path, caplog):
    run(tmp_path, steps=[3, 6, 9])
    damage(tmp_path, 9)
    step, found = run(tmp_path, steps=[9])
    assert step == 6
    assert int(found["step"]) == 6
    assert "The checkpoint of step 9 cannot be used: process 0: " in caplog.text
    (aside,) = (tmp_path / "unusable").iterdir()
    assert json.loads((aside / "unusable.json").read_text())["step"] == 9
    # Saved anew in the same place.
    again = run(tmp_path)
    assert again is not None
    assert (again[0], int(again[1]["step"])) == (9, 9)


def test_no_run_starts_anew_when_no_checkpoint_can_be_read(tmp_path):
    run(tmp_path, steps=[3, 6])
    damage(tmp_path, 3)
    damage(tmp_path, 6)
    with pytest.raises(errors.TrainerError, match=r"none of the checkpoints in .*step 6: .*step 3: .*move steps/"):
        run(tmp_path)
    assert layout.committed(tmp_path) == [6, 3]


def test_checkpoint_of_another_model_is_refused_by_name(tmp_path):
    run(tmp_path, steps=[3], width=4)
    with pytest.raises(errors.ConfigurationError) as caught:
        run(tmp_path, width=8)
    assert "model/layers/0/w has shape (4, 2) in it, (8, 2) is configured" in str(caught.value)
    assert "spec.trainer: the checkpoint of step 3" in str(caught.value)
    assert layout.committed(tmp_path) == [3]


@pytest.mark.parametrize(
    ("wanted", "stored", "lines"),
    [
        ({"a": (2,)}, {"a": (2,)}, []),
        ({"a": (2,)}, {"a": (3,)}, ["a has shape (3,) in it, (2,) is configured"]),
        ({"a": (2,), "b": ()}, {"a": (2,)}, ["b is not in it"]),
        ({"a": (2,)}, {"a": (2,), "b": ()}, ["b is only in it"]),
        (
            {str(i): (1,) for i in range(5)},
            {str(i): (2,) for i in range(5)},
            [f"{i} has shape (2,) in it, (1,) is configured" for i in range(3)] + ["and 2 more"],
        ),
    ],
    ids=["equal", "shape", "missing", "surplus", "many"],
)
def test_differences_are_named(wanted, stored, lines):
    def leaves(shapes):
        return {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in shapes.items()}

    assert restore.differences(leaves(wanted), leaves(stored)) == lines


class FullDisk:
    """Files of this process may not grow beyond a size: writing fails as on a full disk, for the superuser too."""

    def __enter__(self):
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, self.before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


def test_failed_save_is_noticed_and_tried_again(tmp_path, runtime, caplog):
    told = Told()
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime, listener=told)
    noise = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(1000, 100)), jnp.float32)}
    checkpoints.save(1, noise)
    assert checkpoints.finish(LIMIT_SECONDS)
    with FullDisk():
        checkpoints.save(2, noise)
        assert not checkpoints.finish(LIMIT_SECONDS)
    assert "The checkpoint of step 2 failed" in caplog.text
    assert checkpoints.committed_step == 1
    assert checkpoints.save(3, noise)
    assert checkpoints.finish(LIMIT_SECONDS)
    assert told.lines == [("saved", 1), ("committed", 1), ("saved", 2), ("failed", 2), ("saved", 3), ("committed", 3)]
    checkpoints.close()
    assert layout.committed(tmp_path) == [3, 1]


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
    noise = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(1000, 800)), jnp.float32)}
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


def test_training_goes_on_while_saves_fail_and_ends_when_the_last_commit_is_too_old(tmp_path, runtime):
    heard = []

    def opened(fail_after_seconds):
        return Checkpoints(
            str(tmp_path),
            Settings(retention=Retention(last=3), fail_after_seconds=fail_after_seconds),
            runtime,
            listener=Listener(failed=lambda step, why: heard.append(step)),
        )

    checkpoints = opened(3600)
    noise = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(1000, 100)), jnp.float32)}
    begun = time.time()
    with FullDisk():
        for step in (1, 2):
            checkpoints.save(step, noise)
            assert not checkpoints.finish(LIMIT_SECONDS)
        since = checkpoints.failing_since
        assert since is not None
        assert begun - 1 <= since <= time.time()
        strict = opened(0)
        strict.save(3, noise)
        with pytest.raises(
            errors.TrainerError, match=r"spec.checkpointDir: saves to .* nothing was committed for \d+ s"
        ):
            strict.finish(LIMIT_SECONDS)
    assert heard == [1, 2, 3]
    assert checkpoints.save(4, noise)
    assert checkpoints.finish(LIMIT_SECONDS)
    assert checkpoints.failing_since is None
    checkpoints.close()


def test_renamed_copy_of_a_step_is_set_aside(tmp_path, caplog):
    run(tmp_path, steps=[3, 6])
    shutil.copytree(tmp_path / "steps" / "6", tmp_path / "steps" / "99999")
    restored = run(tmp_path)
    assert restored is not None
    assert (restored[0], int(restored[1]["step"])) == (6, 6)
    assert "step 99999 cannot be used: process 0: it holds step 6: the folder was renamed" in caplog.text
    assert layout.committed(tmp_path) == [6, 3]


def test_last_save_is_tried_again_until_it_is_committed(tmp_path, runtime):
    told = Told()
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime, listener=told)
    noise = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(1000, 100)), jnp.float32)}
    disk = FullDisk()
    disk.__enter__()

    def make_room():
        if ("failed", 7) in told.lines:
            disk.__exit__()

    checkpoints.save(7, noise)
    assert checkpoints.commit(7, noise, tick=make_room)
    assert told.lines[:2] == [("saved", 7), ("failed", 7)]
    assert told.lines[-2:] == [("saved", 7), ("committed", 7)]
    checkpoints.close()
    assert layout.committed(tmp_path) == [7]


def test_last_save_is_tried_again_until_saves_have_failed_for_too_long(tmp_path, runtime):
    told = Told()
    settings = Settings(retention=Retention(last=3), fail_after_seconds=1)
    checkpoints = Checkpoints(str(tmp_path), settings, runtime, listener=told)
    noise = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(1000, 100)), jnp.float32)}
    with FullDisk():
        checkpoints.save(7, noise)
        with pytest.raises(errors.TrainerError, match=r"saves to .* fail, and nothing was committed for \d+ s"):
            checkpoints.commit(7, noise)
    assert told.lines.count(("failed", 7)) >= 2


def test_last_save_is_not_tried_again_without_the_time_for_it(tmp_path, runtime):
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime)
    noise = {"w": jnp.asarray(np.random.default_rng(0).normal(size=(1000, 100)), jnp.float32)}
    left = iter([30.0] * 3)
    with FullDisk():
        checkpoints.save(7, noise)
        assert not checkpoints.commit(7, noise, seconds_left=lambda: next(left, 0.0))
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


def test_save_is_passed_over_while_one_is_under_way(tmp_path, runtime, monkeypatch):
    told, may_end, is_committed = Told(), threading.Event(), layout.is_committed
    monkeypatch.setattr(layout, "is_committed", lambda *of: may_end.wait() and is_committed(*of))
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime, listener=told)
    assert checkpoints.save(1, tree(1))
    assert not checkpoints.save(2, tree(2), wait_seconds=0)
    may_end.set()
    assert checkpoints.save(3, tree(3))
    assert checkpoints.finish(LIMIT_SECONDS)
    checkpoints.close()
    assert told.lines == [("saved", 1), ("passed over", 2), ("committed", 1), ("saved", 3), ("committed", 3)]


def test_flipped_bit_is_seen_by_the_fingerprint(tmp_path):
    """Orbax alone restores it without a word: nothing it stores would tell."""
    run(tmp_path, steps=[3, 6])
    stored = tmp_path / "steps" / "6" / "fingerprints" / "metadata"
    values = json.loads(stored.read_text())
    fingerprints = values["arrays"]
    assert set(fingerprints) >= {"model/layers/0/w", "model/norm", "step", "data"}
    first = fingerprints["model/norm"]
    fingerprints["model/norm"] = f"{int(first, 16) ^ 1:016x}"
    stored.write_text(json.dumps(values))
    heard = []
    checkpoints = Checkpoints(
        str(tmp_path),
        Settings(retention=Retention(last=3)),
        new_runtime(),
        listener=Listener(unusable=lambda step, why: heard.append((step, why))),
    )
    restored = checkpoints.restore(abstract())
    assert restored is not None
    assert restored[0] == 3
    assert heard == [(6, "process 0: model/norm: the fingerprint is not that of what was saved")]


def test_fingerprints_of_another_version_are_no_damage(tmp_path, caplog):
    run(tmp_path, steps=[3])
    stored = tmp_path / "steps" / "3" / "fingerprints" / "metadata"
    stored.write_text('{"algorithm": "tpujob/0", "arrays": {"step": "00"}}')
    restored = run(tmp_path)
    assert restored is not None
    assert restored[0] == 3
    assert "the arrays are not verified" in caplog.text


def test_checkpoint_that_is_out_of_reach_is_not_set_aside(tmp_path, monkeypatch):
    run(tmp_path, steps=[3, 6])

    def overloaded(*_):
        raise OSError("UNAVAILABLE: Error reading: HTTP 503")

    monkeypatch.setattr(layout, "fingerprints_of", overloaded)
    with pytest.raises(errors.TrainerError, match=r"step 6 in .* cannot be read at present \(process 0: .*HTTP 503"):
        run(tmp_path)
    assert layout.committed(tmp_path) == [6, 3]


def test_remains_of_interrupted_saves_and_deletions_go_at_the_next_start(tmp_path):
    run(tmp_path, steps=[3, 6, 9])
    steps = tmp_path / "steps"
    (steps / "6" / "commit_success.txt").unlink()
    (steps / "9").rename(steps / "9.orbax-checkpoint-tmp")
    (tmp_path / "trash" / "1-ab").mkdir(parents=True)
    restored = run(tmp_path, steps=[6, 9])
    assert restored is not None
    assert restored[0] == 3
    assert sorted(path.name for path in steps.iterdir()) == ["3", "6", "9"]
    assert list((tmp_path / "trash").iterdir()) == []
    again = run(tmp_path)
    assert again is not None
    assert (again[0], int(again[1]["step"])) == (9, 9)


def test_type_that_differs_is_another_configuration(tmp_path):
    run(tmp_path, steps=[3])
    other = abstract()
    norm = other["model"]["norm"]
    other["model"]["norm"] = jax.ShapeDtypeStruct(norm.shape, jnp.float32, sharding=norm.sharding)
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), new_runtime())
    with pytest.raises(errors.ConfigurationError, match="model/norm has type bfloat16 in it, float32 is configured"):
        checkpoints.restore(other)


def test_best_and_round_steps_stay(tmp_path, runtime):
    rule = Retention(last=1, every_steps=20, best=1, best_metric="loss")
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=rule), runtime)
    checkpoints.restore(abstract())
    for step, loss in ((10, 3.0), (15, 1.0), (20, 2.0), (25, 4.0), (30, 5.0)):
        checkpoints.save(step, tree(step))
        assert checkpoints.finish(LIMIT_SECONDS)
        checkpoints.record_metrics(step, {"loss": loss})
    checkpoints.close()
    assert layout.committed(tmp_path) == [30, 20, 15]
    # What was measured is known to the next attempt.
    again = Checkpoints(str(tmp_path), Settings(retention=rule), new_runtime())
    again.restore(abstract())
    again.save(35, tree(35))
    assert again.finish(LIMIT_SECONDS)
    again.close()
    assert layout.committed(tmp_path) == [35, 20, 15]


def test_metadata_is_that_of_the_newest(tmp_path):
    assert layout.metadata_of_newest(tmp_path) is None
    for step in (3, 6):
        settings = Settings(retention=Retention(last=3), metadata={"at": step})
        checkpoints = Checkpoints(str(tmp_path), settings, new_runtime())
        checkpoints.save(step, tree(step))
        assert checkpoints.finish(LIMIT_SECONDS)
        assert layout.metadata_of_newest(tmp_path) == {"at": step, "step": step}
        checkpoints.close()


def test_steps_that_are_set_aside_may_be_saved_again(tmp_path, runtime):
    run(tmp_path, steps=[3, 6, 9])
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=3)), runtime)
    checkpoints.restore(abstract())
    checkpoints.set_aside_from(6, "the loss was not finite")
    restored = checkpoints.restore(abstract())
    assert restored is not None
    assert (restored[0], int(restored[1]["step"])) == (3, 3)
    for step in (6, 9):
        assert checkpoints.save(step, tree(step + 1))
        assert checkpoints.finish(LIMIT_SECONDS)
    checkpoints.close()
    again = run(tmp_path)
    assert again is not None
    assert (again[0], int(again[1]["step"])) == (9, 10)


@pytest.mark.parametrize("problem", [None, "damaged"], ids=["good here", "damaged here"])
def test_one_process_out_of_reach_ends_the_restore_for_all(tmp_path, problem, monkeypatch):
    """A vote that says nothing about the data never sets a checkpoint aside, whatever the other votes are."""
    run(tmp_path, steps=[3, 6])
    far = {"problem": "HTTP 503", "is_out_of_reach": True, "is_refused": False}
    near = {"problem": problem, "is_out_of_reach": False, "is_refused": False}
    objections = {1: far} if problem is None else {0: near, 1: far}
    monkeypatch.setattr(kv_store.Coordination, "objections", lambda *_, **__: objections)
    with pytest.raises(errors.TrainerError, match=r"step 6 in .* cannot be read at present \(process 1: HTTP 503\)"):
        run(tmp_path)
    assert layout.committed(tmp_path) == [6, 3]


def test_copies_that_differ_after_a_restore_are_damage(tmp_path, monkeypatch):
    run(tmp_path, steps=[3, 6])
    found = Fingerprinter.__call__

    def differing(self, tree):
        return dataclasses.replace(found(self, tree), differing_copies=["weights"])

    monkeypatch.setattr(Fingerprinter, "__call__", differing)
    with pytest.raises(errors.TrainerError, match="weights: the fingerprint is not that of what was saved"):
        run(tmp_path)
