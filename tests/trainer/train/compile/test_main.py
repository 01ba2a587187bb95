"""What the compiler's program answers: layouts ranked, and a change that saves memory where none of them fits."""

import io
import json
from typing import Any

import pytest

from tpujob_trainer.config.schema import TrainerConfig
from tpujob_trainer.train.compile import __main__ as program

BLOCK: dict[str, Any] = {
    "model": {"preset": "llama3-8b"},
    "data": {"path": "gs://bucket/data", "tokenizer": "gs://bucket/tokenizer"},
    "steps": 10,
    "batchSize": 64,
    "sequenceLength": 1024,
}


@pytest.fixture
def compiles(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The values of model.remat that fit, when the compiler, which takes minutes, is played."""
    fitting: set[str] = set()

    def compile_step(config: TrainerConfig, **place: Any) -> dict[str, Any]:
        seconds = {"none": 1.0, "dots": 2.0, "full": 3.0}
        remat = config.model.remat or "full"
        return {"devices": 16, "fits": remat in fitting, "ideal_step_seconds": seconds[remat]}

    monkeypatch.setattr(program, "compile_step", compile_step)
    monkeypatch.setattr(program, "as_json", lambda compiled: compiled)
    monkeypatch.setattr(program, "prepare_environment", lambda: None)
    return fitting


def answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str) -> tuple[int, Any]:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(BLOCK)))
    code = program.main(["v5p", "2x2x4", option])
    return code, json.loads(capsys.readouterr().out)


def test_layouts_are_ranked_with_what_was_expected(
    compiles: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiles |= {"none", "dots", "full"}
    code, found = answer(monkeypatch, capsys, "--suggest")
    assert code == 0
    assert found["compared"] > len(found["ranked"]) == 4
    first, last = found["ranked"][0], found["ranked"][-1]
    assert first["fields"]["model.remat"] == "none"
    assert first["expected_seconds"] > 0
    assert (last["change"], last["fields"], last["expected_seconds"]) == (None, {}, None)
    assert "change" not in found


@pytest.mark.parametrize("option", ["--suggest", "--mend"])
def test_where_nothing_fits_no_change_is_an_answer(
    compiles: set[str], option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = answer(monkeypatch, capsys, option)
    assert (code, found["change"]) == (1, None)
