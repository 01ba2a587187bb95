"""Texts by their words have the very ids that the library gives them."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tpujob_trainer.data.text.word_memo import WordMemo, is_word_by_word, make_memo

ALPHABET = (
    " \t\n\r\f\v'''aabsStmdrevlL019!-_.,\"\0\x1c\x1d\x7f\x85\u00a0éßЖжд中文字\u0301\u2003\u3000\u2019½²٣\u200b😀𝒳"
)
TEXTS = st.lists(st.text(st.sampled_from(ALPHABET) | st.characters(exclude_categories=["Cs"]), max_size=40), max_size=6)


@pytest.fixture(scope="module")
def tokenizer():
    """A byte-level BPE of words from this library's sources, with two added tokens."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=["</s>", "<|a|>"],
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    model.train_from_iterator([Path(json.__file__).read_text()], trainer)
    return model


@pytest.fixture(scope="module")
def memo(tokenizer):
    found = make_memo(tokenizer, tokenizer.to_str().encode())
    assert found is not None
    return found


def encode(memo, texts):
    ids, counts = memo.encode(pa.array(texts, pa.large_string()))
    return [part.tolist() for part in np.split(ids, np.cumsum(counts)[:-1])] if len(texts) else []


def expected(tokenizer, texts):
    return [item.ids for item in tokenizer.encode_batch(texts, add_special_tokens=False)]


@settings(max_examples=120)
@given(texts=TEXTS)
@example(texts=["don't 'salt' we'll ''s ' s", "", "'", "'s", "'r", "'re", "x're's 'll'", "\n's", " 's"])
@example(texts=["a  b   c \n d\n\n e \t f", "  ", " ", "\n", "a ", "a  ", " a", "  a", "\u00a0\u00a0a", "a\u2003 b"])
@example(texts=["ends with </s>", "plain", "<|a|>", "é", "日本語 テキスト", "x\u0301y", "😀 smile", "1½²٣"])
def test_ids_are_those_of_the_library(tokenizer, memo, texts):
    assert encode(memo, texts) == expected(tokenizer, texts)


def test_sources_of_the_standard_library(tokenizer, memo):
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:15]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths]

    assert encode(memo, texts) == expected(tokenizer, texts)


def test_slice_of_a_column(tokenizer, memo):
    texts = [f"text number {number}" for number in range(20)]
    column = pa.array(texts, pa.large_string()).slice(5, 7)

    ids, counts = memo.encode(column)

    assert ids.tolist() == [number for each in expected(tokenizer, texts[5:12]) for number in each]
    assert len(counts) == 7


def test_memory_is_bounded(tokenizer, monkeypatch):
    monkeypatch.setattr("tpujob_trainer.data.text.word_memo.MOST_WORDS", 100)
    memo = WordMemo(tokenizer)
    for begin in range(0, 1000, 20):
        texts = [f"word{number}" for number in range(begin, begin + 20)]
        assert encode(memo, texts) == expected(tokenizer, texts)
        assert len(memo._places) <= 100


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("normalizer", {"type": "NFC"}),
        ("pre_tokenizer", {"type": "Whitespace"}),
        ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": True, "use_regex": True, "trim_offsets": True}),
        ("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False, "trim_offsets": True}),
        ("pre_tokenizer", None),
    ],
    ids=["normalizer", "other cutter", "prefix space", "no cutting", "none"],
)
def test_other_tokenizers_are_left_to_the_library(tokenizer, part, value):
    parts = json.loads(tokenizer.to_str())
    assert is_word_by_word(json.dumps(parts).encode())

    assert not is_word_by_word(json.dumps({**parts, part: value}).encode())
