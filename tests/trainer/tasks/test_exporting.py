"""The finished model as files that training starts from again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.trainer.tasks.test_from_weights import changes, folder
from tests.trainer.tasks.test_pretrain import run
from tpujob_trainer.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("compiled_once")
__all__ = ["folder"]

EMA = {"learningRate": 0.01, "emaDecay": 0.5}
EVALUATION = {"everySteps": 4, "batches": 1}


@pytest.mark.parametrize("average", [False, True], ids=["weights", "average"])
def test_model_that_was_exported_is_the_one_that_was_evaluated(folder: Path, tmp_path: Path, average: bool) -> None:
    same = {"optimizer": EMA, "evaluation": {**EVALUATION, "average": average}}
    export = {"dtype": "float32", "average": average}
    code, left = run(folder, tmp_path / "a", **changes(folder, steps=4, export=export, **same))
    assert code == 0
    assert left is not None
    exported = tmp_path / "a" / "export"
    frozen = {"optimizer": {"learningRate": 1e-9, "emaDecay": 0.5}, "evaluation": EVALUATION}
    again = {**changes(folder, steps=4, **frozen), "model": {"from": str(exported)}}
    _, told = run(folder, tmp_path / "b", **again)
    assert told is not None
    assert told["evaluation_loss"] == pytest.approx(left["evaluation_loss"], rel=1e-5)


def test_export_that_was_missed_is_made_up_for(folder: Path, tmp_path: Path) -> None:
    block = changes(folder, steps=2, export={})
    run(folder, tmp_path / "a", **block)
    shutil.rmtree(tmp_path / "a" / "export")
    code, _ = run(folder, tmp_path / "a", **block)
    assert code == 0
    assert (tmp_path / "a" / "export" / "config.json").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"export": {"average": True}}, r"spec\.trainer\.export\.average: requires optimizer\.emaDecay"),
        ({"evaluation": {**EVALUATION, "average": True}}, r"evaluation\.average: requires optimizer\.emaDecay"),
        ({"export": {}}, r"spec\.trainer\.export\.directory: required without spec\.checkpointDir"),
        ({"export": {}, "model": {"custom": "a:B"}}, r"export: transformers knows no model\.custom"),
    ],
)
def test_wrong_use_is_refused(folder: Path, more: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run(folder, None, **changes(folder, **more))
