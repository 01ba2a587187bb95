"""Rows of every kind of column as tokens, beside the documents that training makes of them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.trainer.data.text.test_columns import TALKS, load, tokenizer_folder  # noqa: F401 - a fixture
from tpujob_trainer.corpus.extract.rows import tokens_of
from tpujob_trainer.data import DataConfig, load_tokenizer, make_manifest
from tpujob_trainer.data.config import MessageConfig, MixturePart
from tpujob_trainer.data.text.documents import documents_of, kind_of
from tpujob_trainer.values.errors import ConfigurationError

TEXTS = ["the quick fox", "dog"]
TALK = tuple(MessageConfig(role=role, content=text) for role, text in (("user", "{{ text }}"), ("assistant", "yes")))


@pytest.fixture
def tokenizer(tokenizer_folder):  # noqa: F811
    return load(tokenizer_folder)


def _config(tmp_path, **more):
    pq.write_table(pa.table({"text": TEXTS, "talk": TALKS, "marked": ["a</s>b", "fox"]}), tmp_path / "rows.parquet")
    return DataConfig(path=str(tmp_path / "rows.parquet"), **more)


def _tokens(config, tokenizer, **more):
    options: dict[str, Any] = {"vocab_size": 400, "longest": 100, "is_cut": True, "is_prompt": False}
    options |= {"retry_seconds": 1, **more}
    rows = tokens_of(make_manifest(config), tokenizer, **options)(0)
    return np.split(rows.tokens, np.cumsum(rows.lengths)[:-1])


def _trained_on(config, tokenizer):
    column = config.column()
    table = pq.read_table(config.path, columns=list(column.names)).combine_chunks()
    rows = table.column(0) if column.kind != "row" else pa.chunked_array(table.to_struct_array())
    made = kind_of(column, tokenizer)(rows, np.arange(2))
    found = documents_of(column, tokenizer)(made.column)
    return np.split(found.ids, np.cumsum(found.lengths)[:-1])


@pytest.mark.parametrize(
    ("source", "ends"),
    [
        pytest.param({}, 1, id="text"),
        pytest.param({"messages_column": "talk"}, 0, id="conversations"),
        pytest.param({"messages_column": "talk", "loss_on": "all"}, 0, id="conversations, all learned"),
        pytest.param({"messages": TALK}, 0, id="conversations of columns"),
        pytest.param({"template": "Say {{ text }}"}, 1, id="a template"),
        pytest.param({"template": "{{ bos_token }}Say {{ text }}"}, 1, id="a template that writes bos"),
        pytest.param({"text_column": "marked", "special_tokens": "text"}, 1, id="special tokens as text"),
    ],
)
def test_rows_are_what_training_reads(tmp_path, tokenizer, source, ends):
    """But for the token that ends a document, where training adds it: there is nothing behind it to predict."""
    config = _config(tmp_path, **source)
    found, wanted = _tokens(config, tokenizer), _trained_on(config, tokenizer)
    assert [ids.tolist() for ids in found] == [ids.tolist()[: len(ids) - ends] for ids in wanted]
    assert all(list(ids).count(tokenizer.bos) == 1 for ids in found)


def test_each_source_of_a_mixture_is_read_as_its_columns_are(tmp_path, tokenizer):
    alone = _config(tmp_path)
    pq.write_table(pa.table({"ids": [[5, 6, 7]]}), tmp_path / "ids.parquet")
    sources = [
        {"path": alone.path},
        {"path": str(tmp_path / "ids.parquet"), "tokens_column": "ids"},
        {"path": alone.path, "messages_column": "talk"},
    ]
    manifest = make_manifest(DataConfig(mixture=tuple(MixturePart(weight=1, **source) for source in sources)))
    read = tokens_of(manifest, tokenizer, vocab_size=400, longest=100, is_cut=True, is_prompt=False, retry_seconds=1)
    found = [np.split(rows.tokens, np.cumsum(rows.lengths)[:-1]) for rows in map(read, range(manifest.num_units))]
    wanted = [_tokens(DataConfig(**source), tokenizer) for source in sources]
    assert [[ids.tolist() for ids in rows] for rows in found] == [[ids.tolist() for ids in rows] for rows in wanted]


def test_conversations_need_a_template(tmp_path):
    config = _config(tmp_path, messages_column="talk", tokenizer="bytes")
    with pytest.raises(ConfigurationError, match=r"^spec\.trainer\.data\.messagesColumn: .* no chat template"):
        _tokens(config, load_tokenizer(config))


def test_tokenizer_of_another_model_is_refused(tmp_path, tokenizer):
    with pytest.raises(ConfigurationError, match=r"^spec\.trainer\.data\.tokenizer: .* embeddings for 5; name"):
        _tokens(_config(tmp_path), tokenizer, vocab_size=5)


@pytest.mark.parametrize("source", [{"messages_column": "talk"}, {"messages": TALK}], ids=["column", "of columns"])
def test_prompts_of_conversations_end_where_the_answer_begins(tmp_path, tokenizer, source):
    """A conversation whose last turn is an answer is asked again, without it; one that asks nothing is left out."""
    config = _config(tmp_path, **source)
    chat = tokenizer.chat_template
    asked = [TALKS[0][:1]] if "messages_column" in source else [[{"role": "user", "content": text}] for text in TEXTS]
    found = _tokens(config, tokenizer, is_prompt=True)
    assert [ids.tolist() for ids in found] == tokenizer.encode([chat.prompt(each) for each in asked])
    assert found[0].tolist() == _tokens(config, tokenizer)[0].tolist()[: len(found[0])]
