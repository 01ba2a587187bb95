"""The whole task in this process, on real files; processes that meet each other are in tests/multiprocess."""

import dataclasses
import json
import logging
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness import attempt_reports
from tpujob_contract import LocalProcess, read_environment
from tpujob_trainer import data
from tpujob_trainer.checkpoint.checkpoints import Checkpoints
from tpujob_trainer.config.schema import load_config
from tpujob_trainer.data.stream.prefetch import Ahead
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.tasks import pretrain
from tpujob_trainer.train.batches import Assembler
from tpujob_trainer.train.nonfinite import NonFiniteError
from tpujob_trainer.train.save_policy import StepFlags
from tpujob_trainer.train.step import Batch
from tpujob_trainer.values.errors import ConfigurationError, TrainerError

pytestmark = pytest.mark.usefixtures("compiled_once")


STEPS = 5


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixteen documents of a language with two words."""
    path = tmp_path_factory.mktemp("text") / "text.parquet"
    pq.write_table(pa.table({"text": [f"{'tick tock ' * (10 + i)}" for i in range(16)]}), path)
    return path


@pytest.fixture(scope="module")
def usual(text: Path, tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> tuple[Path, dict[str, Any]]:
    """The directory of a run of some steps with nothing but defaults, and what it left."""
    directory = tmp_path_factory.mktemp("usual") / "checkpoints"
    left = left_by(text, directory, steps=STEPS)
    return directory, left


def run(text: Path, directory: Path | None, **changes: Any) -> tuple[int, dict[str, Any] | None]:
    """Exit code, and what the attempt left beside the checkpoint."""
    block = {
        "model": {"layers": 1, "embedDim": 16, "heads": 2},
        "data": {"path": str(text)},
        "sequenceLength": 16,
        "batchSize": 8,
        "optimizer": {"learningRate": 0.01},
    }
    environ = {"TPUJOB_CONFIG": json.dumps(block | changes), "TPUJOB_REPORT_PORT": "0"}
    if directory:
        environ["TPUJOB_CHECKPOINT_DIR"] = str(directory)
    stop = StopRequest(grace_seconds=30)
    process = read_environment(environ)
    assert isinstance(process, LocalProcess)
    code = pretrain.run(process, load_config(process.config), stop)
    for word in stop.exit_callbacks:
        word(code, "")
    return code, attempt_reports.latest(str(directory)) if directory else None


def left_by(text: Path, directory: Path, **changes: Any) -> dict[str, Any]:
    """What an attempt that ends well leaves beside the checkpoint."""
    code, left = run(text, directory, **changes)
    assert code == 0
    assert left is not None
    return left


def test_as_many_batches_are_made_ahead_as_the_job_says_and_memory_profiles_stay_beside_the_checkpoint(
    text: Path, tmp_path: Path, usual: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the batches are the same ones."""
    depths = []

    def recorded(make: Any, depth: int) -> Any:
        depths.append(depth)
        return Ahead(make, depth)

    monkeypatch.setattr("tpujob_trainer.data.stream.loader.Ahead", recorded)
    profile = {"memoryEverySteps": 2, "keep": 2}
    _, deep = run(text, tmp_path / "deep", steps=STEPS, profile=profile, data={"path": str(text), "prefetchBatches": 9})
    assert depths == [9]
    assert deep is not None
    assert deep["loss"] == usual[1]["loss"]
    found = list((tmp_path / "deep" / "profiles" / "memory-by-step" / "process-0").iterdir())
    assert 1 <= len(found) <= 2  # one is left out while the one before is still being written
    assert {path.name for path in found} <= {f"{step:012}.pb.gz" for step in (2, 4, STEPS)}
    with pytest.raises(ConfigurationError, match=r"spec\.trainer\.profile: .* spec\.checkpointDir, which is not set"):
        run(text, None, steps=STEPS, profile=profile)


def test_a_run_is_trained_completed_and_extended(text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = tmp_path / "checkpoints"
    left = left_by(text, directory, steps=6, sample={"prompt": "tick ", "tokens": 4, "temperature": 0})
    assert (left["phase"], left["step"], left["committed_step"], left["exit_code"]) == ("finished", 6, 6, 0)
    assert left["loss"] < left["loss_first"]
    assert left["sample"].startswith("tick ")
    assert left["seconds"]["compiling"] > 0

    for folder in (directory / "attempts").iterdir():
        folder.unlink()
    left = left_by(text, directory, steps=6)
    assert (left["restored_from"], left["loss"]) == (6, None)
    assert left["message"].startswith("complete: the checkpoint has 6 of 6 steps")

    for folder in (directory / "attempts").iterdir():
        folder.unlink()
    caplog.clear()
    left = left_by(text, directory, steps=8)
    assert (left["restored_from"], left["step"], left["committed_step"]) == (6, 8, 8)
    # Half a cosine to a tenth of the peak: at 6 of 8 steps it is at 0.00232, at 6 of 6 steps at its end.
    (warned,) = [record.getMessage() for record in caplog.records if "learning rate of step" in record.getMessage()]
    assert "step 7 is 0.00232; by the configuration of the checkpoint, with steps 6, it was 0.001:" in warned
    assert "{schedule: constant, learningRate: 0.001, warmupSteps: 0}" in warned


def test_evaluation_is_the_same_each_time_and_apart_from_training(
    text: Path, tmp_path: Path, usual: tuple[Path, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    evaluation = {"everySteps": 2, "batches": 2, "data": {"path": str(text)}}
    left = left_by(text, tmp_path / "with", steps=STEPS, evaluation=evaluation)
    assert (left["evaluation_step"], left["loss"]) == (STEPS, usual[1]["loss"])
    assert left["evaluation_loss"] < left["loss_first"]
    assert left["seconds"]["evaluating"] > 0
    found = re.findall(r"Step (\d): evaluation loss [\d.]+ over (\d+) tokens", caplog.text)
    assert [step for step, _ in found] == ["2", "4", "5"]
    assert len({tokens for _, tokens in found}) == 1
    assert caplog.text.count("Reading data: ") == 2, "of the training and of the evaluation, which is read three times"
    assert (tmp_path / "with" / "evaluation").exists()


def test_evaluation_data_that_cannot_be_read_ends_it_before_the_first_step(text: Path, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"content": "a text"}\n' * 99)
    (tmp_path / "empty.txt").write_text(" \n" * 99)
    for name, problem in (
        ("nothere", "matches no file"),
        ("other.jsonl", "its first batches have no token .* textColumn"),
        ("empty.txt", "no rows in 1 units of data"),
    ):
        with pytest.raises(TrainerError, match=rf"^spec\.trainer\.evaluation\.data\.path: .*{problem}"):
            run(
                text, tmp_path / name[:3], evaluation={"everySteps": 1, "data": {"path": str(tmp_path / name)}}, steps=1
            )
        assert not list((tmp_path / name[:3]).glob("steps/*"))


def test_without_a_directory_it_trains_all_the_same(text: Path, caplog: pytest.LogCaptureFixture) -> None:
    code, left = run(text, None, steps=2)
    assert (code, left) == (0, None)
    assert "spec.checkpointDir is not set: this run saves nothing, and cannot be resumed" in caplog.text


def test_a_batch_that_does_not_divide_ends_it_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"spec\.trainer\.batchSize: 12 rows do not divide over 8 devices"):
        run(tmp_path / "missing.parquet", None, steps=2, batchSize=12)


def test_a_sample_longer_than_the_context_is_refused(text: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"spec\.trainer\.sample\.tokens: 20 and the prompt's 3 .* 13 would fit"
    ):
        run(text, None, steps=2, sample={"prompt": "ab", "tokens": 20})


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Numbers of batches in which a target is no token of the model, so that their loss is not finite."""
    numbers: set[int] = set()
    make = Assembler.batch

    def batch(self: Assembler, local: data.LocalBatch, signals: StepFlags) -> Batch:
        if int(local.state[0, data.STATE_COLUMNS.index("batches")]) in numbers:
            targets = local.targets.copy()
            targets[0, 0] = 99_999
            local = dataclasses.replace(local, targets=targets, loss_mask=np.ones_like(local.loss_mask))
        return make(self, local, signals)

    monkeypatch.setattr(Assembler, "batch", batch)
    return numbers


def test_poisoned_batches_are_left_out_and_the_next_ones_end_it(
    text: Path, tmp_path: Path, poison: set[int], caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "checkpoints"
    settings = {"checkpoint": {"everySteps": 2}, "nonFinite": {"maxSkips": 1}}
    poison.update({7, 8, 12})
    left = left_by(text, directory, steps=10, **settings)
    # Step 6's state was never seen to have a finite loss; batch 6 may have spoiled it. Saves never wait for each other.
    assert re.search(r"went back to step [024]; batches 6, 7, 8 are left out from now on", caplog.text)
    assert (left["step"], left["committed_step"]) == (10, 10)
    assert left["lost_steps"] == 8 - (left["restored_from"] or 0)
    assert left["goodput"]["lost_steps"] > 0
    assert json.loads((directory / "nonfinite.json").read_text())["rollbacks"][0]["batches"] == [6, 7, 8]

    # Batches 1 to 13 were read for ten steps: the next attempt takes the fourteenth.
    poison.update({14, 15})
    with pytest.raises(
        NonFiniteError, match=r"^steps 11 to 12: .* gone back 1 times already, .* at steps 7 to 8"
    ) as end:
        run(text, directory, steps=14, **settings)
    assert end.value.exit_code == 76


def test_run_that_has_not_the_memory_to_restore_is_tried_again(
    text: Path, usual: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had it when it saved: what holds the memory now may be gone next time."""

    def exhausted(*_: object, **__: object) -> None:
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 8M"
        )

    monkeypatch.setattr(Checkpoints, "restore", exhausted)
    with pytest.raises(TrainerError, match="not enough memory") as caught:
        run(text, usual[0], steps=STEPS + 1)
    assert caught.value.exit_code == 1
