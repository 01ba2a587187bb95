"""What stands beside the weights of a source stands beside those of an export, as it was."""

import json

import pytest

from tests.trainer.model.weights.make_reference import FOLDER
from tests.trainer.model.weights.test_load import load
from tpujob_trainer.data.config import DataConfig
from tpujob_trainer.model.weights.companions import read_companions
from tpujob_trainer.model.weights.export import export_weights
from tpujob_trainer.values.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("compiled_once")

SAID = {
    "eos_token_id": [2, 7],
    "bos_token_id": 3,
    "pad_token_id": 0,
    "max_position_embeddings": 131072,
    "initializer_range": 0.2,
    "attention_dropout": 0.1,
}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    given = json.loads((FOLDER / "llama" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**given, **SAID}))
    (folder / "model.safetensors").write_bytes((FOLDER / "llama" / "model.safetensors").read_bytes())
    (folder / "generation_config.json").write_text('{"eos_token_id": [2, 7]}\n')
    (folder / "tokenizer.json").write_text('{"not": "read here"}')
    (folder / "chat_template.jinja").write_bytes(b"{{ messages }}\r\n")
    (folder / "README.md").write_text("of somebody else")
    return folder


def data(tokenizer):
    return DataConfig(path="/", tokenizer=tokenizer)


def test_an_export_says_what_its_source_said(source, tmp_path):
    model, weights = load(source)
    companions = read_companions(str(source), data(str(source)))
    export_weights(str(tmp_path / "out"), model.shape, weights, max_positions=16, companions=companions)

    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {key: written[key] for key in SAID} == SAID
    assert (written["dtype"], written["torch_dtype"]) == ("bfloat16", "bfloat16")
    assert written["rope_scaling"] == {k: v for k, v in written["rope_parameters"].items() if k != "rope_theta"}
    for name in ("generation_config.json", "tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    assert not (tmp_path / "out" / "README.md").exists()


@pytest.mark.parametrize("named", ["", "/tokenizer.json"])
def test_the_tokenizer_that_was_trained_with_goes_first(source, tmp_path, named):
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text("{}")

    files = read_companions(str(source), data(f"{other}{named}")).files

    assert files["tokenizer.json"] == b"{}"
    assert files["generation_config.json"] == b'{"eos_token_id": [2, 7]}\n'


def test_a_fresh_model_ends_by_the_end_of_its_tokenizer():
    found = read_companions(None, data("bytes"))
    assert (found.config, found.files) == (None, {})
    assert found.ids["eos_token_id"] is not None


def test_a_config_that_is_no_mapping_is_refused(source):
    (source / "config.json").write_text("[]")
    with pytest.raises(ConfigurationError, match=r"config\.json is not JSON of a model: JSON, but no object"):
        read_companions(str(source), data(str(source)))
