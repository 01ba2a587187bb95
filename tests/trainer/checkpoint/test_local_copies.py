"""Copies of one process on its disk; several processes are in tests/multiprocess."""

import dataclasses
import resource
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tpujob_trainer.checkpoint import local_file
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.local_copies import LocalCopies
from tpujob_trainer.checkpoint.local_restore import Choice, choose
from tpujob_trainer.checkpoint.retention import Retention, Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.values import errors

LIMIT_SECONDS = 60.0
ALL = [{0, 1}]
SLICES = [{0, 1}, {2, 3}]


def has(*steps, save="a", committed=10):
    return [(step, f"{save}/{step}", committed) for step in steps]


@pytest.mark.parametrize(
    ("copies", "slices", "newest", "expected"),
    [
        pytest.param({0: has(12, 14), 1: has(12, 14)}, ALL, 10, Choice(14, "a/14", None), id="newest of all"),
        pytest.param({0: has(12, 14), 1: has(12)}, ALL, 10, Choice(12, "a/12", None), id="newest that both have"),
        pytest.param({0: has(14), 1: has(12)}, ALL, 10, None, id="steps are never mixed"),
        pytest.param({0: has(12)}, ALL, 10, None, id="one host lost its disk"),
        pytest.param({}, ALL, 10, None, id="none"),
        pytest.param({0: has(12), 1: has(12, save="b")}, ALL, 10, None, id="saves of two attempts"),
        pytest.param({0: has(12), 1: has(12)}, ALL, 12, None, id="the bucket has it"),
        pytest.param({0: has(12), 1: has(12)}, ALL, 8, None, id="the checkpoint was moved away"),
        pytest.param({0: has(12), 1: has(12)}, ALL, None, None, id="no checkpoint at all"),
        pytest.param({0: has(12, committed=None), 1: has(12)}, ALL, 10, None, id="saved before the first commit"),
        pytest.param({0: has(12), 2: has(12), 3: has(12)}, SLICES, 10, Choice(12, "a/12", 1), id="one whole slice"),
        pytest.param({i: has(12) for i in range(4)}, SLICES, 10, Choice(12, "a/12", None), id="both slices"),
        pytest.param(
            {0: has(12), 1: has(12), 2: has(14), 3: has(14)}, SLICES, 10, Choice(14, "a/14", 1), id="the newer slice"
        ),
        pytest.param({0: has(12), 3: has(12)}, SLICES, 10, None, id="no whole slice"),
    ],
)
def test_copies_are_chosen(copies, slices, newest, expected):
    assert choose(copies, slices, newest=newest) == expected


def runtime():
    return Runtime(process_id=0, num_processes=1, attempt_id="0.0-x", host="here", coordination=kv_store.alone())


def tree(value):
    return {"w": jnp.full((8, 2), value, jnp.float32), "scale": jnp.full((), value, jnp.bfloat16)}


def abstract():
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("one",)), PartitionSpec())
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree(0))


def attempt(tmp_path):
    """The checkpoints of a new attempt, and its copies."""
    copies = LocalCopies(str(tmp_path / "local"), run=str(tmp_path / "bucket"), runtime=runtime())
    return Checkpoints(
        str(tmp_path / "bucket"), Settings(retention=Retention(last=3)), runtime(), copies=copies
    ), copies


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of step 5, and copies of steps 6 and 7."""
    (tmp_path / "bucket").mkdir()
    saver, copies = attempt(tmp_path)
    assert saver.restore(abstract()) is None
    saver.save(5, tree(5))
    assert saver.finish(LIMIT_SECONDS)
    for step in (6, 7):
        saver.copy(step, tree(step), metadata={"said": step})
        copies.wait()
    return tmp_path


def files(tmp_path):
    return sorted((tmp_path / "local").rglob("*.state"))


def restored(tmp_path, **arguments):
    saver, _ = attempt(tmp_path)
    found = saver.restore(abstract(), **arguments)
    assert found is not None
    step, state = found
    jax.tree.map(np.testing.assert_array_equal, state, tree(step))
    assert saver.committed_step == 5
    return step


def test_newer_copy_is_restored_and_the_commit_is_known(saved):
    assert restored(saved) == 7
    assert [path.name for path in files(saved)] == ["7.state"]


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        flip_a_bit,
        lambda path: path.write_bytes(path.read_bytes()[:-3]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    ],
    ids=["bit", "cut off", "empty", "zeros"],
)
def test_damaged_copy_is_never_restored(saved, damage):
    damage(files(saved)[-1])
    assert restored(saved) == 6


def test_files_of_other_programs_harm_no_copy_and_stay(saved):
    folder = files(saved)[0].parent
    (folder / "notes.state").write_text("of another program")
    (folder / "logs").mkdir()
    saver, copies = attempt(saved)
    assert saver.restore(abstract()) is not None
    for step in (8, 9, 10):
        saver.copy(step, tree(step))
        copies.wait()
    assert sorted(path.name for path in folder.iterdir()) == ["10.state", "9.state", "logs", "notes.state"]
    assert restored(saved) == 10


def test_folder_of_the_copies_that_was_deleted_is_made_again(saved):
    shutil.rmtree(saved / "local")
    saver, copies = attempt(saved)
    shutil.rmtree(saved / "local")
    assert saver.restore(abstract()) is not None
    saver.copy(8, tree(8))
    copies.wait()
    assert [path.name for path in files(saved)] == ["8.state"]


def test_copy_that_was_not_finished_is_none(saved):
    for path in files(saved):
        path.rename(path.with_name(path.name + local_file.UNFINISHED))
    assert restored(saved) == 5
    assert list((saved / "local").rglob("*.state*")) == []


def test_copy_of_other_values_is_refused_by_its_fingerprints(saved):
    path = files(saved)[-1]
    found = local_file.open_file(path)
    shards = [
        (shard.leaf, shard.shape, shard.index, np.asarray(found.read(shard.leaf, shard.index) + 1))
        for shard in found.shards.values()
    ]
    local_file.write(path, found.header, shards)
    assert restored(saved) == 6


def test_check_has_the_last_word(saved):
    asked = []
    assert restored(saved, check=lambda step, tree, said: asked.append((step, said.get("said")))) == 7
    assert asked == [(7, 7)]
    assert restored(saved, check=lambda step, tree, said: "another batch" if step == 7 else None) == 5


def test_copies_of_another_layout_are_not_used(saved):
    wider = {**abstract(), "w": jax.ShapeDtypeStruct((9, 2), np.float32, sharding=abstract()["w"].sharding)}
    _, copies = attempt(saved)
    assert copies.found(wider) == {}
    assert sorted(copies.found(abstract())) == [6, 7]


def test_steps_that_are_set_aside_take_their_copies_along(saved):
    saver, _ = attempt(saved)
    saver.set_aside_from(6, "the loss is not finite")
    assert files(saved) == []
    assert restored(saved) == 5


def test_run_that_is_complete_leaves_no_copies(saved):
    saver, _ = attempt(saved)
    saver.close()
    assert files(saved) == []


def test_full_disk_is_told_of_and_harms_nothing_else(saved, caplog):
    saver, copies = attempt(saved)
    assert saver.restore(abstract()) is not None
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        saver.copy(8, tree(8))
        copies.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "No local copy of step 8" in caplog.text
    assert [path.name for path in files(saved)] == ["7.state"]
    assert list((saved / "local").rglob(f"*{local_file.UNFINISHED}")) == []
    assert saver.save(9, tree(9))
    assert saver.finish(LIMIT_SECONDS)


def test_newest_two_are_kept(saved):
    saver, copies = attempt(saved)
    saver.copy(8, tree(8))
    copies.wait()
    assert [path.name for path in files(saved)] == ["7.state", "8.state"]


def test_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(errors.ConfigurationError, match=r"spec\.trainer\.checkpoint\.local\.dir: .*/file cannot be"):
        LocalCopies(str(tmp_path / "file"), run="gs://bucket/run", runtime=runtime())


@pytest.mark.parametrize("field", ["header", "shard"])
def test_length_that_lies_takes_no_memory(tmp_path, field):
    """A length of 2^62 bytes would be asked of the machine otherwise."""
    header = local_file.Header(
        run="/run", step=4, save="s", committed=2, process=(0, 1), algorithm="a", fingerprints={}, metadata={}
    )
    path = tmp_path / "4.state"
    local_file.write(path, header, [("w", (2,), ((0, 2),), np.ones(2, np.float32))])
    if field == "header":
        content = path.read_bytes()
        path.write_bytes(content[:8] + (1 << 62).to_bytes(8, "little") + content[16:])
        with pytest.raises(ValueError, match="is cut off, or not as it was written"):
            local_file.open_file(path)
    else:
        found = local_file.open_file(path)
        (key,) = found.shards
        lying = dataclasses.replace(found.shards[key], size=1 << 62)
        with pytest.raises(ValueError, match=r"w in .* is cut off, or not as it was written"):
            dataclasses.replace(found, shards={key: lying}).read(*key)
