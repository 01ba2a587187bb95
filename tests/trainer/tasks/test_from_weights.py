"""Training that starts from the weights of a Hugging Face model, in this process."""

import json
import math
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers
from safetensors.numpy import load_file

from tests.trainer.model.weights.make_reference import ADAPTER, FOLDER, PROMPT
from tests.trainer.tasks.test_pretrain import left_by, run
from tpujob_trainer.tasks.stored_checkpoint import export
from tpujob_trainer.values.errors import ConfigurationError, NotFoundError

pytestmark = pytest.mark.usefixtures("compiled_once")

LENGTH = len(PROMPT) - 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows of the prompt's tokens, and a tokenizer with as many ids as the models have."""
    folder = tmp_path_factory.mktemp("tokens")
    pq.write_table(pa.table({"ids": [PROMPT] * 64}), folder / "ids.parquet", row_group_size=8)
    vocabulary = {"</s>": 0, **{f"w{number}": number for number in range(1, 96)}}
    tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w1")).save(str(folder / "tokenizer.json"))
    return folder


def changes(folder, name="llama", **more):
    return {
        "model": {"from": str(FOLDER / name)},
        "data": {"path": str(folder / "ids.parquet"), "tokensColumn": "ids", "tokenizer": str(folder)},
        "sequenceLength": LENGTH + 1,
        "steps": 1,
        **more,
    }


def loss_of_transformers(name: str) -> float:
    """Mean loss of the prompt's tokens but the first, by the logits that transformers, or PEFT, computed."""
    logits = np.array(json.loads((FOLDER / name / "expected.json").read_text())["logits"])[:-1]
    losses = [math.log(np.exp(row).sum()) - row[target] for row, target in zip(logits, PROMPT[1:], strict=True)]
    return float(np.mean(losses))


def test_the_first_loss_is_that_of_the_weights(folder, tmp_path):
    """Of the families' logits, tests/trainer/model/weights says it."""
    left = left_by(folder, tmp_path / "checkpoints", **changes(folder, "gemma2"))

    assert left["loss"] == pytest.approx(loss_of_transformers("gemma2"), rel=1e-5)


def test_lora_trains_adapters_alone_and_goes_on_from_its_checkpoint(folder, tmp_path):
    """The weights stay those of the model, and what is merged with them is the exported adapter."""
    directory = tmp_path / "checkpoints"
    more = {"lora": {"rank": 4, "alpha": 8.0}, "export": {}, "optimizer": {"learningRate": 0.02}}
    run(folder, directory, **changes(folder, steps=8, **more))
    left = left_by(folder, directory, **changes(folder, steps=16, **more))

    assert left["restored_from"] == 8
    assert left["loss"] < 0.7 * loss_of_transformers("llama")

    export(str(directory), 16, str(tmp_path / "merged"), dtype="F32")
    before, merged, adapter = (
        load_file(path)
        for path in (
            FOLDER / "llama" / "model.safetensors",
            next((tmp_path / "merged").glob("*.safetensors")),
            directory / "export" / "adapter_model.safetensors",
        )
    )
    name = "model.layers.1.mlp.down_proj"
    a, b = (adapter[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    assert np.abs(b).max() > 1e-3
    np.testing.assert_allclose(merged[f"{name}.weight"] - before[f"{name}.weight"], 8 / 4 * b @ a, atol=1e-5)
    np.testing.assert_array_equal(merged["model.embed_tokens.weight"], before["model.embed_tokens.weight"])
    config = json.loads((directory / "export" / "adapter_config.json").read_text())
    assert (config["r"], config["base_model_name_or_path"]) == (4, str(FOLDER / "llama"))


def test_training_goes_on_from_an_adapter_and_exports_the_sum(folder, tmp_path):
    lora = {"from": str(ADAPTER), "rank": 3, "alpha": 6.0}
    more = {"lora": lora, "optimizer": {"learningRate": 1e-9}, "export": {"merged": True, "dtype": "float32"}}
    left = left_by(folder, tmp_path / "checkpoints", **changes(folder, **more))

    assert left["loss"] == pytest.approx(loss_of_transformers(ADAPTER.name), rel=1e-5)
    before, merged, adapter = (
        load_file(path)
        for path in (
            FOLDER / "llama" / "model.safetensors",
            tmp_path / "checkpoints" / "export" / "model.safetensors",
            ADAPTER / "adapter_model.safetensors",
        )
    )
    name = "model.layers.1.self_attn.q_proj"
    a, b = (adapter[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    np.testing.assert_allclose(merged[f"{name}.weight"] - before[f"{name}.weight"], 6 / 3 * b @ a, atol=1e-5)
    assert not (tmp_path / "checkpoints" / "export" / "adapter_config.json").exists()


def test_adapter_of_another_rank_is_refused_with_its_rank(folder):
    with pytest.raises(ConfigurationError, match=r"lora\.rank: the adapter in .* has 3, the job says 16; write"):
        run(folder, None, **changes(folder, lora={"from": str(ADAPTER)}))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"export": {"merged": True}}, r"export\.merged: adds adapters to the weights, and the job has none"),
        ({"model": {"preset": "tiny"}, "data": {"path": "y"}, "lora": {}}, r"lora: requires model\.from"),
        ({"lora": {}, "optimizer": {"emaDecay": 0.9}}, r"lora: excludes optimizer\.emaDecay"),
        ({"lora": {"targets": ["gates"]}}, r"lora\.targets"),
        ({"model": {"from": "x", "layers": 2}}, r"model\.layers: excludes from, whose config\.json says it"),
        ({"model": {"from": "x"}, "data": {"path": "y"}}, r"data\.tokenizer: required with model\.from"),
        ({"model": {"from": "/nowhere"}}, r"model\.from: '/nowhere' is not there"),
    ],
)
def test_wrong_use_is_refused_by_name(folder, more, message):
    with pytest.raises((ConfigurationError, NotFoundError), match=message):
        run(folder, None, **changes(folder, **more))


@pytest.mark.parametrize("name", ["gpt-oss", "qwen2-moe"])
def test_experts_whose_adapters_nobody_reads_have_none(folder, name):
    with pytest.raises(ConfigurationError, match=rf"lora\.targets: gate, up, down: the experts of {name} have no"):
        run(folder, None, **changes(folder, name, lora={}))


def test_another_tokenizer_is_refused(folder, tmp_path):
    data = {"path": str(folder / "ids.parquet"), "tokensColumn": "ids", "tokenizer": "bytes"}
    with pytest.raises(ConfigurationError, match=r"model\.from: the model has 96 ids, the tokenizer 259"):
        run(folder, None, **changes(folder, data=data))


def test_a_sample_ends_where_the_model_says_so(folder, tmp_path):
    """By the eos_token_id of generation_config.json, which the tokenizer does not know."""
    source = tmp_path / "model"
    shutil.copytree(FOLDER / "llama", source)
    written = json.loads((source / "expected.json").read_text())["generated"]
    (source / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, written[2]]}))
    words = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.save(str(tmp_path / "tokenizer.json"))
    asked = " ".join(f"w{number}" for number in PROMPT)
    sample = {"prompt": asked, "tokens": 4, "temperature": 0}
    given = changes(folder, sample=sample, optimizer={"learningRate": 1e-9}, sequenceLength=len(PROMPT) + 8)
    given |= {"model": {"from": str(source)}, "data": given["data"] | {"tokenizer": str(tmp_path)}}

    left = left_by(folder, tmp_path / "checkpoints", **given)

    assert left["sample"] == asked + " ".join(f"w{number}" for number in written[:2])
