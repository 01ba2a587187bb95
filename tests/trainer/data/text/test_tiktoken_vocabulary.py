"""Vocabularies of tiktoken give the ids that tiktoken gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from tpujob_trainer.data import DataConfig, Tokenizer, load_tokenizer
from tpujob_trainer.values.errors import ConfigurationError

EXPECTED: dict[str, Any] = json.loads(Path(__file__).with_name("tiktoken_ids.json").read_text())
VOCABULARY = "".join(f"{line}\n" for line in EXPECTED["vocabulary"])
LLAMA3 = {
    "added_tokens_decoder": {
        "900": {"content": "<|begin_of_text|>", "special": True},
        "901": {"content": "<|end_of_text|>", "special": True},
        "905": {"content": "<|eot_id|>", "special": True},
    },
    "bos_token": "<|begin_of_text|>",
    "eos_token": "<|eot_id|>",
}


def load(file: Path, content: str = VOCABULARY, settings: dict[str, Any] | None = None) -> Tokenizer:
    file.write_text(content)
    if settings is not None:
        file.with_name("tokenizer_config.json").write_text(json.dumps(settings))
    return load_tokenizer(DataConfig(path="p", tokenizer=str(file)))


@pytest.mark.parametrize(
    ("name", "size", "eos"),
    [
        ("r50k_base", 50257, 50256),
        ("p50k_base", 50257, 50256),
        ("cl100k_base", 100277, 100257),
        ("o200k_base", 200019, 199999),
    ],
)
def test_ids_equal_those_of_tiktoken(tmp_path: Path, name: str, size: int, eos: int) -> None:
    tokenizer = load(tmp_path / f"{name}.tiktoken")
    assert (tokenizer.vocab_size, tokenizer.bos, tokenizer.eos) == (size, None, eos)
    texts = EXPECTED["texts"]
    ids = tokenizer.spelled_out.encode(texts)
    assert ids == EXPECTED["ids"][name]
    assert [tokenizer.decode(each) for each in ids] == texts
    assert tokenizer.encode(["a<|endoftext|>"])[0][-1] == eos


def test_author_names_the_special_tokens(tmp_path: Path) -> None:
    tokenizer = load(tmp_path / "tokenizer.model", settings=LLAMA3)
    assert (tokenizer.vocab_size, tokenizer.bos, tokenizer.eos) == (906, 900, 905)
    assert tokenizer.spelled_out.encode(EXPECTED["texts"]) == EXPECTED["ids"]["cl100k_base"]
    assert tokenizer.encode(["<|eot_id|><|end_of_text|>"]) == [[905, 901]]


def test_vocabulary_without_special_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"mine\.tiktoken' is a vocabulary of tiktoken, which holds no special"
    ):
        load(tmp_path / "mine.tiktoken")


def test_damaged_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"cl100k_base\.tiktoken' is not a vocabulary of tiktoken"):
        load(tmp_path / "cl100k_base.tiktoken", VOCABULARY + "cut\n")
