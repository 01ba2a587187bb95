"""Training that starts from the weights of a Hugging Face model, in this process."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from tests.trainer.tasks.test_pretrain import run
from tests.trainer.weights.make_reference import FOLDER, PROMPT
from tpujob_trainer.errors import ConfigurationError, NotFoundError

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
    """Mean loss of the prompt's tokens but the first, by the logits that transformers computed."""
    logits = np.array(json.loads((FOLDER / name / "expected.json").read_text())["logits"])[:-1]
    losses = [math.log(np.exp(row).sum()) - row[target] for row, target in zip(logits, PROMPT[1:], strict=True)]
    return float(np.mean(losses))


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_the_first_loss_is_that_of_the_weights(folder, tmp_path, name):
    code, left = run(folder, tmp_path / "checkpoints", **changes(folder, name))

    assert code == 0
    assert left is not None
    assert left["loss"] == pytest.approx(loss_of_transformers(name), rel=1e-5)


def test_training_goes_on_from_its_checkpoint_not_from_the_weights(folder, tmp_path):
    run(folder, tmp_path / "checkpoints", **changes(folder, steps=8))
    _, left = run(folder, tmp_path / "checkpoints", **changes(folder, steps=16))

    assert left is not None
    assert left["restored_from"] == 8
    assert left["loss"] < 0.5 * loss_of_transformers("llama")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": {"from": "x", "layers": 2}}, r"model\.layers: excludes from, whose config\.json says it"),
        ({"model": {"from": "x"}, "data": {"path": "y"}}, r"data\.tokenizer: required with model\.from"),
        ({"model": {"from": "/nowhere"}}, r"model\.from: '/nowhere' is not there"),
    ],
)
def test_wrong_use_is_refused_by_name(folder, more, message):
    with pytest.raises((ConfigurationError, NotFoundError), match=message):
        run(folder, None, **changes(folder, **more))


def test_another_tokenizer_is_refused(folder, tmp_path):
    data = {"path": str(folder / "ids.parquet"), "tokensColumn": "ids", "tokenizer": "bytes"}
    with pytest.raises(ConfigurationError, match=r"model\.from: the model has 96 ids, the tokenizer 259"):
        run(folder, None, **changes(folder, data=data))
