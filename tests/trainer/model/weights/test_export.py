"""What is exported is what was loaded, byte for byte, and opens in the library of the format."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from tests.trainer.model.weights.make_reference import FAMILIES, FOLDER
from tests.trainer.model.weights.running import is_close
from tests.trainer.model.weights.test_load import DIVIDED, load, loaded
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.model.mesh.cost import MeshShape
from tpujob_trainer.model.weights.companions import Companions, read_companions
from tpujob_trainer.model.weights.export import export_weights
from tpujob_trainer.model.weights.load import load_weights
from tpujob_trainer.model.weights.read_shape import read_shape
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError

pytestmark = pytest.mark.usefixtures("compiled_once")


def content_of(folder):
    return {name: array for file in folder.glob("*.safetensors") for name, array in load_file(file).items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_export_gives_the_same_tensors(tmp_path, name):
    """In several files from one device, and in one file from several devices."""
    is_divided = name in DIVIDED
    model, weights = load(FOLDER / name, MeshShape(fsdp=2, tensor=2)) if is_divided else loaded(name)

    companions = read_companions(str(FOLDER / name), DataConfig(path="/"))
    export_weights(
        str(tmp_path),
        model.shape,
        weights,
        max_positions=128,
        dtype="F32",
        file_bytes=10**9 if is_divided else 20_000,
        companions=companions if "images" in name else Companions(),
    )

    given, found = content_of(FOLDER / name), content_of(tmp_path)
    assert found.keys() == given.keys()
    for tensor, array in given.items():
        np.testing.assert_array_equal(found[tensor], array, err_msg=tensor)
    assert is_close(read_shape(str(tmp_path), remat="none", compute_dtype="float32"), model.shape)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert ("model.safetensors.index.json" in files) is not is_divided
    assert not [file for file in files if file.endswith(".partial")]
    if not is_divided:
        _, again = load(tmp_path)
        np.testing.assert_array_equal(again["embedding"], weights["embedding"])


def test_bfloat16_is_half_the_bytes(tmp_path):
    model, weights = loaded("llama")

    export_weights(str(tmp_path), model.shape, weights, max_positions=128)

    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    found = load_weights(str(tmp_path), model.shape, model.abstract_weights, model.shardings)
    np.testing.assert_allclose(found["embedding"], weights["embedding"], rtol=2**-8)


def test_bias_that_chooses_experts_stays_wide(tmp_path):
    model, weights = loaded("deepseek-v3")

    export_weights(str(tmp_path), model.shape, weights, max_positions=128)

    with safe_open(tmp_path / "model.safetensors", framework="numpy") as file:
        types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - not a mapping
    assert {name for name, kind in types.items() if kind == "F32"} == {
        f"model.layers.{layer}.mlp.gate.e_score_correction_bias" for layer in (1, 2)
    }
    found = load_weights(str(tmp_path), model.shape, model.abstract_weights, model.shardings)
    bias = found["layers"]["experts"]["router_bias"]
    np.testing.assert_array_equal(bias, weights["layers"]["experts"]["router_bias"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 4}, r"model\.from: there is no tensor 'model\.layers\.3\..*config\.json"),
        ({"intermediate_size": 64}, r"model\.from: 'model\.layers\.0\.mlp.* is \(48, 32\), config.json makes it"),
        ({"model_type": "mamba"}, r"model\.from: .*model_type 'mamba' is none of"),
        ({"attention_bias": True}, r"attention_bias is True; with model_type llama, only False is supported"),
        ({"rope_parameters": {"rope_type": "su"}}, r"rope_type 'su' is none of"),
        ({"hidden_size": None}, r"config\.json: hidden_size is None, not a whole number"),
    ],
)
def test_wrong_config_is_refused_by_its_key(tmp_path, change, message):
    given = json.loads((FOLDER / "llama" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**given, **change}))
    (tmp_path / "model.safetensors").write_bytes((FOLDER / "llama" / "model.safetensors").read_bytes())

    with pytest.raises(ConfigurationError, match=message):
        load(tmp_path)


def test_files_that_are_none_are_refused(tmp_path):
    (tmp_path / "config.json").write_bytes((FOLDER / "llama" / "config.json").read_bytes())
    with pytest.raises(NotFoundError, match=r"has neither model\.safetensors nor model\.safetensors\.index\.json"):
        load(tmp_path)
    whole = (FOLDER / "llama" / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-1000])
    with pytest.raises(ConfigurationError, match=r"'model.safetensors' is cut: it has \d+ of \d+ bytes; copy it again"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ConfigurationError, match="is not a file of safetensors"):
        load(tmp_path)
    with pytest.raises(NotFoundError, match=r"model\.from: '.*' is not there"):
        load(tmp_path / "nowhere")


def test_export_over_another_leaves_nothing_of_it(tmp_path):
    model, weights = loaded("llama")
    export_weights(str(tmp_path), model.shape, weights, max_positions=128, dtype="F32", file_bytes=20_000)

    export_weights(str(tmp_path), model.shape, weights, max_positions=128, dtype="F32")

    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
