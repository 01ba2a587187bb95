"""The data position in real checkpoints: how large it is, and that it belongs to the batches that were trained on."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorstore

from tests.trainer.tasks.test_pretrain import run
from tpujob_trainer import data
from tpujob_trainer.checkpoint import layout
from tpujob_trainer.model.mesh.build import build_mesh
from tpujob_trainer.train.batches import Assembler
from tpujob_trainer.values.errors import ConfigurationError, TrainerError

pytestmark = pytest.mark.usefixtures("compiled_once")

ROWS, LANES = 8, 4
BYTES_PER_LANE = 64


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The text and the checkpoints, of steps 2 and 4, of a run with two rows for each lane."""
    folder = tmp_path_factory.mktemp("position")
    text, checkpoints = folder / "text.parquet", folder / "checkpoints"
    pq.write_table(pa.table({"text": [f"{number} " * 30 for number in range(64)]}), text)
    code, _ = go_on(text, checkpoints, 4)
    assert code == 0
    return text, checkpoints


def go_on(text: Path, checkpoints: Path, steps: int) -> tuple[int, dict | None]:
    settings = {"data": {"path": str(text), "lanes": LANES}, "checkpoint": {"everySteps": 2}}
    return run(text, checkpoints, steps=steps, batchSize=ROWS, **settings)


def saved_position(checkpoints: Path, step: int) -> np.ndarray:
    """As it lies there, read without Orbax."""
    base = f"file://{layout.folder(checkpoints, step)}/state/"
    kvstore = {"driver": "ocdbt", "base": base, "path": "data/"}
    return np.asarray(tensorstore.open({"driver": "zarr", "kvstore": kvstore}).result().read().result())


def edit_metadata(checkpoints: Path, step: int, change) -> None:
    path = layout.folder(checkpoints, step) / layout.METADATA
    values = json.loads(path.read_text())
    change(values["custom_metadata"])
    path.write_text(json.dumps(values))


def test_position_takes_few_bytes_for_each_lane(begun: tuple[Path, Path]) -> None:
    position = saved_position(begun[1], 4)

    assert len(position) == LANES < ROWS
    assert position.nbytes <= BYTES_PER_LANE * LANES
    assert position[:, data.STATE_COLUMNS.index("batches")].tolist() == [4] * LANES


def test_resume_compares_the_hash_of_all_batches(begun: tuple[Path, Path], caplog: pytest.LogCaptureFixture) -> None:
    """A checkpoint of which the two disagree is set aside, and the run goes on from the one before."""
    text, checkpoints = begun
    two, four = (data.batches_digest(saved_position(checkpoints, step)) for step in (2, 4))
    edit_metadata(checkpoints, 4, lambda said: said.update(batches="0" * 16))

    with caplog.at_level("INFO"):
        go_on(text, checkpoints, 5)

    problem = rf"step 4 cannot be used: process 0: the data position is that of batches {four}, .* batches 0{{16}}"
    assert re.search(problem, caplog.text)
    assert list((checkpoints / layout.UNUSABLE).iterdir())
    assert f"Step 2 goes on from the batches it was saved after: digest={two}" in caplog.text
    assert data.batches_digest(saved_position(checkpoints, 4)) == four, "saved anew, after the same batches"


def test_position_of_another_layout_is_refused(begun: tuple[Path, Path]) -> None:
    text, checkpoints = begun
    edit_metadata(checkpoints, layout.committed(checkpoints)[0], lambda said: said["data"].pop("position"))

    with pytest.raises(ConfigurationError, match=r"^spec\.trainer: the way .* keeps the position of its data was None"):
        go_on(text, checkpoints, 8)


@pytest.mark.parametrize("lanes", [1, 2, 3, 6, 12, 24])
def test_position_of_all_lanes_is_on_every_device(lanes: int) -> None:
    assembler = Assembler(build_mesh(slices=1), 24, lanes)
    state = np.arange(lanes * 16, dtype=np.int32).reshape(lanes, 16)

    position = assembler.position(state)

    assert [np.array_equal(shard.data, state) for shard in position.of_lanes.addressable_shards] == [True] * 8
    assert position.digest == data.batches_digest(state)


def test_hosts_that_read_other_tokens_for_one_lane_are_told_before_it_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    assembler = Assembler(build_mesh(slices=1), 8, 2)
    make = assembler.array

    def torn(local: np.ndarray) -> jax.Array:
        local[6, 7] += 1  # as one of the hosts that hold rows 4 to 7 would say it
        return make(local)

    monkeypatch.setattr(assembler, "array", torn)
    with pytest.raises(TrainerError, match=r"the hosts that share lane 1 .* have made other tokens of the same rows"):
        assembler.position(np.ones((2, 8), np.int32))
