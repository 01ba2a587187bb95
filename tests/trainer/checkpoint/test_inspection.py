"""What a checkpoint directory is said to hold, read off real checkpoints."""

import json
from pathlib import Path

import jax.numpy as jnp
import pytest

from tpujob_trainer.checkpoint import inspection, layout, ownership
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.checkpoint.retention import Retention, Settings
from tpujob_trainer.distributed import kv_store
from tpujob_trainer.distributed.initialize import Runtime
from tpujob_trainer.storage import open_bucket
from tpujob_trainer.tasks import stored_checkpoint
from tpujob_trainer.values.errors import NotFoundError

RUN = {"batchSize": 8, "sequenceLength": 32}


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """A run with checkpoints of steps 2 and 4, the second with what was measured, and the remains of a save."""
    runtime = Runtime(process_id=0, num_processes=1, attempt_id="0.0-x", host="here", coordination=kv_store.alone())
    claim = ownership.claim(str(tmp_path), owner="team/llama", adopt=None, runtime=runtime)
    checkpoints = Checkpoints(
        str(tmp_path),
        Settings(
            retention=Retention(last=3),
            metadata={"configuration": RUN, "data": {"data": "abc"}, "processes": 1, "versions": {"jax": "1"}},
        ),
        runtime,
    )
    for step in (2, 4):
        checkpoints.save(step, {"w": jnp.ones((256,))})
        assert checkpoints.finish(30)
    checkpoints.record_metrics(4, {"evaluation_loss": 1.5})
    checkpoints.close()
    claim.close()
    (tmp_path / "steps" / "6.orbax-checkpoint-tmp").mkdir()
    open_bucket(tmp_path).write("attempts/1.json", json.dumps({"step": 4, "loss": 1.25}))
    return str(tmp_path)


def test_checkpoints_are_listed_with_what_is_known_of_them(directory: str) -> None:
    found = inspection.inspect(directory)
    assert (found["owner"], found["unfinished"]) == ("team/llama", [6])
    newest, before = found["checkpoints"]
    assert (newest["step"], newest["loss"], newest["metrics"]) == (4, 1.25, {"evaluation_loss": 1.5})
    assert newest["data"] == {"batches": 4, "tokens": 4 * 8 * 32, "fingerprint": "abc"}
    assert newest["bytes"] == sum(p.stat().st_size for p in Path(directory, "steps/4").rglob("*") if p.is_file())
    assert (before["step"], before["loss"], before["metrics"]) == (2, None, {})


def test_one_is_chosen_by_its_step(directory: str) -> None:
    found = inspection.inspect(directory)
    assert inspection.select(found, None)["step"] == 4
    assert inspection.select(found, 2)["versions"] == {"jax": "1"}
    with pytest.raises(NotFoundError, match="--step: 3 is not a committed checkpoint; there are 2, 4"):
        inspection.select(found, 3)


def test_another_folder_is_no_checkpoint_directory(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"is no checkpoint directory: it has no owner\.json"):
        inspection.inspect(str(tmp_path))


@pytest.mark.parametrize("damage", [{"configuration": 7, "data": 1.5}, {"configuration": {"batchSize": [8]}}])
def test_what_is_damaged_of_a_description_is_not_known(directory: str, damage: dict[str, object]) -> None:
    file = Path(directory, "steps/4", layout.METADATA)
    described = json.loads(file.read_text())
    described["custom_metadata"] |= damage
    file.write_text(json.dumps(described))
    newest = inspection.inspect(directory)["checkpoints"][0]
    assert (newest["step"], newest["problem"], newest["data"]["tokens"]) == (4, None, 0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "the file _CHECKPOINT_METADATA is not as it was written"),
        ('{"custom_metadata": [1]}', "the file _CHECKPOINT_METADATA is not as it was written"),
        ('{"custom_metadata": {"step": "x"}}', "it does not say its step"),
        ("[" * 100_000, "the file _CHECKPOINT_METADATA is not as it was written"),
        ('{"custom_metadata": {"step": 2}}', "it holds step 2: the folder was renamed"),
        (None, "_CHECKPOINT_METADATA"),
    ],
    ids=["cut", "a list", "no number", "deep", "renamed", "missing"],
)
def test_a_checkpoint_that_cannot_be_used_hides_no_other(directory: str, content: str | None, words: str) -> None:
    file = Path(directory, "steps/4", layout.METADATA)
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    found = inspection.inspect(directory)
    damaged, whole = found["checkpoints"]
    assert (damaged["step"], whole["step"], whole["problem"]) == (4, 2, None)
    assert words in damaged["problem"]
    assert inspection.select(found, None)["step"] == 2
    with pytest.raises(NotFoundError, match="--step: 4 cannot be exported: ") as refused:
        stored_checkpoint.export(directory, 4, "out", dtype="F32")
    assert "\n" not in str(refused.value)
