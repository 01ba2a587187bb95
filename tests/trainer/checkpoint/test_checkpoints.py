"""One process with one device and real files; several processes are in tests/multiprocess."""

import json
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec

from tests.trainer.checkpoint import attempts
from tests.trainer.checkpoint.attempts import LIMIT_SECONDS, Told, abstract, new_runtime, restored_step, run, tree
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.retention import Retention, Settings

pytestmark = attempts.LATE_FAILURES


def test_nothing_there_is_none(tmp_path):
    assert run(tmp_path) is None


def test_what_was_saved_is_restored(tmp_path):
    run(tmp_path, steps=[7])
    step, found = run(tmp_path)
    assert step == 7
    jax.tree.map(np.testing.assert_array_equal, found, tree(7))
    assert jax.tree.map(lambda x: x.dtype, found) == jax.tree.map(lambda x: jnp.asarray(x).dtype, tree(7))


@pytest.mark.parametrize("name", ["run[1]", "[a-z]", "what?", "all*", "a%20b", "c d"])
def test_name_of_a_folder_is_no_pattern(tmp_path, name):
    run(tmp_path / name, steps=[1, 2], keep=1)
    assert layout.committed(tmp_path / name) == [2]
    assert [path.name for path in (tmp_path / name / "trash").iterdir()] == []
    assert restored_step(tmp_path / name) == 2


def test_commit_that_lacks_arrays_is_none_and_replaces_no_older_one(tmp_path, runtime, monkeypatch):
    told = Told()
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=1)), runtime, listener=told)
    checkpoints.save(1, tree(1))
    assert checkpoints.finish(LIMIT_SECONDS)
    # Orbax finds no parts that it could merge, and goes on.
    monkeypatch.setattr(type(epath.Path("/")), "glob", lambda self, pattern: iter(()))
    checkpoints.save(2, tree(2))
    assert not checkpoints.finish(LIMIT_SECONDS)
    assert checkpoints.problem == "TrainerError: its index has 0 of 9 arrays"
    assert ("failed", 2) in told.lines
    checkpoints.close()
    assert layout.committed(tmp_path) == [1]


def test_newest_is_restored_and_old_ones_go(tmp_path):
    run(tmp_path, steps=[1, 2, 10, 30], keep=2)
    assert layout.committed(tmp_path) == [30, 10]
    assert restored_step(tmp_path) == 30


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


def test_copies_of_small_arrays_are_saved_without_compiling(tmp_path, caplog):
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:4])
    copied = {"leaf": jax.device_put(np.ones((4, 3), np.float32), NamedSharding(mesh, PartitionSpec()))}
    checkpoints = Checkpoints(str(tmp_path), Settings(retention=Retention(last=1)), new_runtime())
    assert checkpoints.restore(copied) is None
    with jax.log_compiles():
        assert checkpoints.save(1, copied)
    assert checkpoints.finish(LIMIT_SECONDS)
    checkpoints.close()
    assert "XLA compilation" not in caplog.text
