"""Single changes are tried in the order of their cost, and what fits is ranked by the work that it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpujob_trainer.train.compile.changes import Change, first_that_fits, ranked, saving_changes, spending_changes

BLOCK: dict[str, Any] = {
    "model": {"preset": "tiny", "remat": "dots"},
    "data": {"path": "data/*.parquet"},
    "steps": 10,
    "batchSize": 64,
    "sequenceLength": 256,
}
PLACE: dict[str, Any] = {"devices": 16, "slices": 1, "vocabulary": 256}


def test_changes_that_save_cost_least_first() -> None:
    assert [str(change) for change in saving_changes(BLOCK, **PLACE)] == [
        "model.remat: full",
        "gradientAccumulation: 2",
        "gradientAccumulation: 4",
        "mesh.context: 2",
        "optimizer.name: adafactor",
    ]


def test_changes_that_spend_need_room_and_a_mesh() -> None:
    found = [str(change) for change in spending_changes({**BLOCK, "gradientAccumulation": 2}, **PLACE)]
    assert found == ["model.remat: none", "gradientAccumulation: 1", "mesh.tensor: 2"]


def test_what_full_keeps_can_be_moved_and_added_to() -> None:
    block = {**BLOCK, "model": {"preset": "small"}}
    assert str(next(saving_changes(block, **PLACE))) == "model.rematOffload: [input]"
    found = [str(change) for change in spending_changes(block, **PLACE)]
    assert found[:3] == ["model.rematSave: [attention]", "model.remat: dots", "model.remat: none"]


def test_a_change_leaves_the_block_it_was_made_of() -> None:
    assert Change("model.remat", "full").applied(BLOCK)["model"] == {"preset": "tiny", "remat": "full"}
    assert BLOCK["model"]["remat"] == "dots"


def test_first_change_that_fits_ends_the_search() -> None:
    tried = []

    def compile_block(block: Mapping[str, Any]) -> dict[str, Any]:
        tried.append(block)
        return {"fits": block.get("gradientAccumulation") == 2}

    found = first_that_fits(BLOCK, saving_changes(BLOCK, **PLACE), compile_block)
    assert found is not None
    assert str(found.change) == "gradientAccumulation: 2"
    assert len(tried) == 2


def test_none_that_fits_is_said() -> None:
    assert first_that_fits(BLOCK, saving_changes(BLOCK, **PLACE), lambda block: {"fits": False}) is None


def test_shortest_step_ranks_first_and_what_does_not_fit_last() -> None:
    seconds = {"full": 0.4, "dots": 0.32, "none": 0.3}

    def compile_block(block: Mapping[str, Any]) -> dict[str, Any]:
        remat = block["model"]["remat"]
        return {"fits": remat != "none", "ideal_step_seconds": seconds[remat]}

    block = {**BLOCK, "model": {"preset": "tiny", "remat": "full"}}
    changes = iter([Change("model.remat", "dots"), Change("model.remat", "none")])
    found = ranked(block, changes, compile_block)
    assert [str(each.change) for each in found] == ["model.remat: dots", "None", "model.remat: none"]
