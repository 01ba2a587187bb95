"""What lies in a checkpoint directory, and what deleting a step takes away."""

from tpujob_trainer.checkpoint import layout
from tpujob_trainer.storage import open_bucket


def commit(directory, step):
    folder = directory / "steps" / str(step)
    folder.mkdir(parents=True)
    (folder / "commit_success.txt").touch()


def test_deleting_a_step_takes_what_an_interrupted_save_left_of_it(tmp_path):
    commit(tmp_path, 3)
    for name in ("6.orbax-checkpoint-tmp", "6.orbax-checkpoint-tmp-1", "60.orbax-checkpoint-tmp"):
        (tmp_path / "steps" / name).mkdir()
    assert layout.leftovers(tmp_path) == [6, 60]
    layout.delete(tmp_path, 6)
    assert layout.leftovers(tmp_path) == [60]
    assert layout.committed(tmp_path) == [3]
    assert list((tmp_path / "trash").iterdir()) == []


def test_folders_of_others_are_no_steps(tmp_path):
    for name in ("3", "03", "٣", "3.orig", "9" * 30):
        commit(tmp_path, name)
    (tmp_path / "steps" / "007").mkdir()
    assert (layout.committed(tmp_path), layout.leftovers(tmp_path)) == ([3], [])


def test_remains_beside_a_checkpoint_do_not_delete_it(tmp_path):
    """The step was interrupted once, was saved by the next attempt, and the remains are still there."""
    commit(tmp_path, 6)
    (tmp_path / "steps" / "6.orbax-checkpoint-tmp-1").mkdir()
    assert layout.leftovers(tmp_path) == []


def test_deleting_a_step_takes_its_metrics(tmp_path):
    commit(tmp_path, 3)
    layout.write_metrics(tmp_path, 3, {"loss": 2.5})
    assert layout.metrics_of(tmp_path, 3) == {"loss": 2.5}
    layout.delete(tmp_path, 3)
    assert layout.metrics_of(tmp_path, 3) == {}


def test_step_that_is_set_aside_is_no_checkpoint_and_keeps_its_data(tmp_path):
    commit(tmp_path, 3)
    where = layout.set_aside(tmp_path, 3, "a flipped bit")
    assert layout.committed(tmp_path) == []
    assert (tmp_path / "steps" / "3").exists() is False
    assert open_bucket(where).look("unusable.json") is not None


def test_steps_are_deleted_and_set_aside_one_after_another(tmp_path):
    for step in (1, 2, 3, 4):
        commit(tmp_path, step)
    for step in (1, 2):
        layout.delete(tmp_path, step)
    for step in (3, 4):
        layout.set_aside(tmp_path, step, "a flipped bit")
    assert layout.committed(tmp_path) == []
    assert len(list((tmp_path / "unusable").iterdir())) == 2


def test_step_in_a_bucket_is_deleted_at_once_and_may_be_gone(tmp_path, monkeypatch):
    """Of a bucket there is its prefix alone; a folder stands for it here."""
    commit(tmp_path, 3)
    monkeypatch.setattr(layout, "is_local", lambda directory: False)
    monkeypatch.setattr(layout, "_forget_listings", lambda directory: None)
    layout.delete(tmp_path, 3)
    assert not (tmp_path / "steps" / "3").exists()
    layout.delete(tmp_path, 3)
    assert not (tmp_path / "trash").exists()
