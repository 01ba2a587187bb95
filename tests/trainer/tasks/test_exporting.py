"""The finished model as files that training starts from again."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from tests.trainer.model.test_custom_model import Bigrams
from tests.trainer.tasks.test_from_weights import changes, folder
from tests.trainer.tasks.test_pretrain import left_by, run
from tpujob_trainer.tasks.stored_checkpoint import export
from tpujob_trainer.values.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("compiled_once")
__all__ = ["folder"]

EMA = {"learningRate": 0.01, "emaDecay": 0.5}
EVALUATION = {"everySteps": 4, "batches": 1}


@pytest.mark.parametrize("average", [False, True], ids=["weights", "average"])
def test_model_that_was_exported_is_the_one_that_was_evaluated(folder: Path, tmp_path: Path, average: bool) -> None:
    same = {"optimizer": EMA, "evaluation": {**EVALUATION, "average": average}}
    export = {"dtype": "float32", "average": average}
    left = left_by(folder, tmp_path / "a", **changes(folder, steps=4, export=export, **same))
    exported = tmp_path / "a" / "export"
    frozen = {"optimizer": {"learningRate": 1e-9, "emaDecay": 0.5}, "evaluation": EVALUATION}
    again = {**changes(folder, steps=4, **frozen), "model": {"from": str(exported)}}
    told = left_by(folder, tmp_path / "b", **again)
    assert told["evaluation_loss"] == pytest.approx(left["evaluation_loss"], rel=1e-5)


def test_export_that_was_missed_is_made_up_for(folder: Path, tmp_path: Path) -> None:
    block = changes(folder, steps=2, export={})
    run(folder, tmp_path / "a", **block)
    shutil.rmtree(tmp_path / "a" / "export")
    code, _ = run(folder, tmp_path / "a", **block)
    assert code == 0
    assert (tmp_path / "a" / "export" / "config.json").exists()


def test_module_of_ones_own_goes_out_by_the_paths_of_its_parameters(folder: Path, tmp_path: Path) -> None:
    """From the run and from its checkpoint, the same; a Python without tpujob makes the module of it again."""
    model = {"custom": "tests.trainer.model.test_custom_model:Bigrams", "arguments": {"width": 24}}
    block = {**changes(folder, steps=2, export={"dtype": "float32"}), "model": model}
    code, _ = run(folder, tmp_path / "a", **block)
    assert code == 0
    found = export(str(tmp_path / "a"), None, str(tmp_path / "b"), dtype="F32")

    exported, again = (load_file(each / "model.safetensors") for each in (tmp_path / "a" / "export", tmp_path / "b"))
    assert {name: array.shape for name, array in exported.items()} == {
        "embed.embedding": (128, 24),
        "layers.0.kernel": (24, 128),
        "layers.0.bias": (128,),
    }
    for name, array in exported.items():
        np.testing.assert_array_equal(again[name], array)
    described = json.loads((tmp_path / "b" / "model.json").read_text())
    assert described == {**model, "vocabSize": 128, "step": 2}
    assert described == json.loads((tmp_path / "a" / "export" / "model.json").read_text())
    assert found["parameters"] == sum(array.size for array in exported.values())
    with nnx.use_eager_sharding(False):
        module = Bigrams(**described["arguments"], vocab_size=described["vocabSize"], rngs=nnx.Rngs(0))
    nnx.update(module, nnx.from_flat_state({path(name): nnx.Param(array) for name, array in exported.items()}))
    np.testing.assert_array_equal(module.layers[0].kernel[...], exported["layers.0.kernel"])


def test_weights_of_ones_own_model_come_back_in(folder: Path, tmp_path: Path) -> None:
    """In the form of another library, too, whose parameters are called so; what is not of the model is refused."""
    model: dict[str, Any] = {"custom": "tests.trainer.model.test_custom_model:Bigrams", "arguments": {"width": 24}}
    block = {**changes(folder, steps=3, export={"dtype": "float32"}, evaluation=EVALUATION), "model": model}
    left = left_by(folder, tmp_path / "a", **block)
    exported = tmp_path / "a" / "export"
    frozen = changes(folder, steps=1, optimizer={"learningRate": 1e-9}, evaluation={**EVALUATION, "everySteps": 1})
    again = left_by(folder, tmp_path / "b", **{**frozen, "model": {**model, "weights": str(exported)}})
    assert again["evaluation_loss"] == pytest.approx(left["evaluation_loss"], rel=1e-6)

    tensors = load_file(exported / "model.safetensors")
    for changed, message in (
        ({**tensors, "head": np.zeros(3, np.float32)}, "has 1 tensors that the model has no parameter for.*'head'"),
        ({name: tensors[name] for name in list(tensors)[1:]}, "there is no tensor .*; is the model's code that of"),
        ({name: array[:5] for name, array in tensors.items()}, r"is \(5,.*\), the model's code makes it \("),
    ):
        save_file(changed, exported / "model.safetensors")
        directory = tmp_path / str(len(message))
        with pytest.raises(ConfigurationError, match=rf"spec\.trainer\.model\.weights: .*{message}"):
            run(folder, directory, **{**frozen, "model": {**model, "weights": str(exported)}})


def path(name: str) -> tuple[int | str, ...]:
    return tuple(int(part) if part.isdigit() else part for part in name.split("."))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"export": {"average": True}}, r"spec\.trainer\.export\.average: requires optimizer\.emaDecay"),
        ({"evaluation": {**EVALUATION, "average": True}}, r"evaluation\.average: requires optimizer\.emaDecay"),
        ({"export": {}}, r"spec\.trainer\.export\.directory: required without spec\.checkpointDir"),
    ],
)
def test_wrong_use_is_refused(folder: Path, more: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        run(folder, None, **changes(folder, **more))
