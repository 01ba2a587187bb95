"""Single changes are tried in the order of their cost."""

from collections.abc import Mapping
from typing import Any

from tpujob_trainer.model.chips import CHIPS
from tpujob_trainer.train.compile.changes import Change, Place, first_that_fits, saving_changes

BLOCK: dict[str, Any] = {
    "model": {"preset": "tiny", "remat": "dots"},
    "data": {"path": "data/*.parquet"},
    "steps": 10,
    "batchSize": 64,
    "sequenceLength": 256,
}
PLACE = Place(devices=16, slices=1, vocabulary=256, chip=CHIPS["v5e"])


def test_changes_that_save_cost_least_first() -> None:
    assert [str(change) for change in saving_changes(BLOCK, PLACE)] == [
        "model.remat: full",
        "gradientAccumulation: 2",
        "gradientAccumulation: 4",
        "mesh.context: 2",
        "optimizer.name: adafactor",
    ]


def test_what_full_keeps_can_be_moved() -> None:
    block = {**BLOCK, "model": {"preset": "small"}}
    assert str(next(saving_changes(block, PLACE))) == "model.rematOffload: [input]"


def test_a_change_leaves_the_block_it_was_made_of() -> None:
    assert Change("model.remat", "full").applied(BLOCK)["model"] == {"preset": "tiny", "remat": "full"}
    assert BLOCK["model"]["remat"] == "dots"
    assert Change("model.remat", None).applied(BLOCK)["model"] == {"preset": "tiny"}
    assert Change("model.rematSave", ("input",)).applied(BLOCK)["model"]["rematSave"] == ["input"]


def test_first_change_that_fits_ends_the_search() -> None:
    tried = []

    def compile_block(block: Mapping[str, Any]) -> dict[str, Any]:
        tried.append(block)
        return {"fits": block.get("gradientAccumulation") == 2}

    found = first_that_fits(BLOCK, saving_changes(BLOCK, PLACE), compile_block)
    assert found is not None
    assert [str(change) for change in found.changes] == ["gradientAccumulation: 2"]
    assert len(tried) == 2


def test_none_that_fits_is_said() -> None:
    assert first_that_fits(BLOCK, saving_changes(BLOCK, PLACE), lambda block: {"fits": False}) is None
