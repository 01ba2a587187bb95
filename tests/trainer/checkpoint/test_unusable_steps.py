"""Checkpoints that are damaged, of another model, or out of reach: what is restored instead, and what is refused."""

import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer.checkpoint import attempts
from tests.trainer.checkpoint.attempts import abstract, damage, new_runtime, restored_step, run
from tpujob_trainer.checkpoint import layout, restore
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.fingerprint import Fingerprinter
from tpujob_trainer.checkpoint.retention import Listener, Retention, Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.values import errors

pytestmark = attempts.LATE_FAILURES


def test_step_without_marker_is_no_checkpoint(tmp_path):
    run(tmp_path, steps=[3, 6])
    (tmp_path / "steps" / "6" / "commit_success.txt").unlink()
    assert restored_step(tmp_path) == 3


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
    assert restored_step(tmp_path) == 9


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


def test_newest_step_that_looks_like_another_model_is_damaged_where_the_one_before_does_not(tmp_path, caplog):
    run(tmp_path, steps=[3, 6])
    metadata = tmp_path / "steps" / "6" / "state" / "_METADATA"
    described = json.loads(metadata.read_text())
    described["tree_metadata"].popitem()
    metadata.write_text(json.dumps(described))
    assert restored_step(tmp_path) == 3
    assert "The checkpoint of step 6 cannot be used" in caplog.text
    assert layout.committed(tmp_path) == [3]


@pytest.mark.parametrize(
    ("wanted", "stored", "lines"),
    [
        ({"a": (2,)}, {"a": (2,)}, []),
        ({"a": (2,)}, {"a": (3,)}, ["a has shape (3,) in it, (2,) is configured"]),
        ({"a": jnp.ones(2)}, {"a": jnp.ones(2, "bfloat16")}, ["a has type bfloat16 in it, float32 is configured"]),
        ({"a": (2,), "b": ()}, {"a": (2,)}, ["b is not in it"]),
        ({"a": (2,)}, {"a": (2,), "b": ()}, ["b is only in it"]),
        (
            {str(i): (1,) for i in range(5)},
            {str(i): (2,) for i in range(5)},
            [f"{i} has shape (2,) in it, (1,) is configured" for i in range(3)] + ["and 2 more"],
        ),
    ],
    ids=["equal", "shape", "type", "missing", "surplus", "many"],
)
def test_differences_are_named(wanted, stored, lines):
    def leaves(shapes):
        """Of arrays, or of float32 where a shape is given."""
        return {
            name: jax.ShapeDtypeStruct(each, np.float32) if isinstance(each, tuple) else each
            for name, each in shapes.items()
        }

    assert restore.differences(leaves(wanted), leaves(stored)) == lines


def test_renamed_copy_of_a_step_is_set_aside(tmp_path, caplog):
    run(tmp_path, steps=[3, 6])
    shutil.copytree(tmp_path / "steps" / "6", tmp_path / "steps" / "99999")
    assert restored_step(tmp_path) == 6
    assert "step 99999 cannot be used: process 0: it holds step 6: the folder was renamed" in caplog.text
    assert layout.committed(tmp_path) == [6, 3]


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
    assert restored_step(tmp_path) == 3
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
    assert restored_step(tmp_path, steps=[6, 9]) == 3
    assert sorted(path.name for path in steps.iterdir()) == ["3", "6", "9"]
    assert list((tmp_path / "trash").iterdir()) == []
    assert restored_step(tmp_path) == 9


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


def test_random_keys_are_compared_by_their_numbers():
    keys = jax.random.split(jax.random.key(0), 3)
    assert restore.differences({"rng": keys}, {"rng": jax.random.key_data(keys)}) == []
    assert restore.differences({"rng": keys[0]}, {"rng": jax.random.key_data(keys)}) != []
