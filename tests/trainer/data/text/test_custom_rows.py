"""Rows by a function of the user's own (`data.custom`), beside the templates that say the same."""

import importlib
import re
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.trainer.data.text.test_row_template import MESSAGES, ROWS, TEMPLATE, config_of, documents, folder, rows
from tpujob_trainer.data import make_manifest
from tpujob_trainer.data.manifest.table import read_manifest, write_manifest
from tpujob_trainer.data.text.columns import LEFT_OUT
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.references import source_digests

__all__ = ["folder", "rows"]
COLUMNS = ["query", "synthetic_reasoning", "synthetic_answer"]
CODE = """
def text(row):
    return (
        f"<|im_start|>user\\n{row['query']}<|im_end|>\\n<|im_start|>assistant\\n"
        f"<think>\\n{row['synthetic_reasoning']}\\n</think>\\n{row['synthetic_answer']}<|im_end|>\\n"
    )

def messages(row):
    return [
        {"role": "user", "content": row["query"]},
        {"role": "assistant", "content": think(row)},
    ]

def think(row):
    return f"<think>\\n{row['synthetic_reasoning']}\\n</think>\\n{row['synthetic_answer']}"

def even(row):
    return text(row) if row["id"] % 2 == 0 else None

def number(row):
    return row["id"]

def ids(row):
    return list(row["query"].encode())

def few(row):
    return None if row["id"] % 2 else ([] if row["id"] % 4 else [100_000] if row["id"] % 8 else [1, 2, 3])

def half(row):
    return [0.5]

def broken(row):
    return row["queri"]
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's, on the path; its module is `my_rows`."""
    (tmp_path / "my_rows.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rows", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    source_digests.cache_clear()
    return tmp_path / "my_rows.py"


def custom(folder, name="text", **block):
    return config_of(folder, custom=f"my_rows:{name}", columns=COLUMNS, **block)


@pytest.mark.usefixtures("code")
def test_function_gives_the_tokens_of_the_template_that_says_the_same(folder):
    tokens, learned, counts = documents(custom(folder))
    expected, expected_learned, _ = documents(config_of(folder, template=TEMPLATE))
    assert sorted(tokens) == sorted(expected)
    assert sum(learned) == sum(expected_learned)
    assert (counts.used, counts.skipped) == (ROWS, 0)


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize("loss_on", ["assistant", "all"])
def test_messages_of_a_function_are_those_of_templates(folder, loss_on):
    tokens, learned, _ = documents(custom(folder, "messages", lossOn=loss_on, maxRows=50))
    expected, expected_learned, _ = documents(config_of(folder, messages=MESSAGES, lossOn=loss_on, maxRows=50))
    assert sorted(tokens) == sorted(expected)
    assert sum(learned) == sum(expected_learned)


@pytest.mark.usefixtures("code")
def test_rows_that_are_left_out_are_counted_and_are_no_fault_of_the_data(folder):
    _, _, counts = documents(config_of(folder, custom="my_rows:even", columns=["id", *COLUMNS], maxSkippedFraction=0))
    assert dict(counts.by_cause) == {"left out by data.custom": ROWS // 2}
    assert counts.used == ROWS // 2


@pytest.mark.usefixtures("code")
def test_ids_of_a_function_are_those_of_a_column(folder, rows, tmp_path):
    ids = [list(row["query"].encode()) for row in rows]
    pq.write_table(pa.table({"ids": ids}), tmp_path / "ids.parquet")
    common = {"tokenizer": "bytes"}
    of_function = {"custom": "my_rows:ids", "columns": ["query"], "returns": "tokens"}
    tokens, learned, counts = documents(config_of(folder, **common, **of_function))
    of_column = {"path": str(tmp_path / "ids.parquet"), "tokensColumn": "ids"}
    expected, expected_learned, _ = documents(config_of(folder, **common, **of_column))
    assert sorted(tokens) == sorted(expected)
    assert sum(learned) == sum(expected_learned)
    assert counts.used == ROWS


@pytest.mark.usefixtures("code")
def test_rows_without_use_of_a_function_of_ids_are_counted_by_cause(folder):
    block = {"custom": "my_rows:few", "columns": ["id"], "returns": "tokens", "maxSkippedFraction": 1}
    tokens, _, counts = documents(config_of(folder, tokenizer="bytes", **block))
    kinds = Counter(
        LEFT_OUT if at % 2 else "empty" if at % 4 else "id outside of the vocabulary" if at % 8 else "used"
        for at in range(ROWS)
    )
    assert counts.used == kinds.pop("used")
    assert dict(counts.by_cause) == dict(kinds)
    assert set(tokens) == {1, 2, 3}


@pytest.mark.usefixtures("code")
@pytest.mark.parametrize(
    ("name", "block", "said"),
    [
        ("broken", {}, r"data\.custom: my_rows:broken raised KeyError: 'queri' for a row of query \(str\), "),
        ("number", {"columns": ["id"]}, r"my_rows:number returned int for a row of id \(int\), and not a text"),
        ("messages", {}, r"my_rows:messages returned list for a row of .*, and not a text \(for messages set lossOn, "),
        ("half", {"returns": "tokens"}, r"my_rows:half returned list for a row of .*, and not a list of token ids"),
        ("text", {"returns": "tokens"}, r"my_rows:text returned str for a row of .*, and not a list of token ids"),
        ("text", {"lossOn": "all"}, r"my_rows:text returned str for a row of .*, and not a list of messages"),
        ("nothing", {}, r"data\.custom: my_rows has no 'nothing'; it has broken, even, few, half, ids, messages"),
    ],
)
def test_mistake_of_a_function_is_named_as_its_own(folder, name, block, said):
    with pytest.raises(ConfigurationError, match=said):
        documents(config_of(folder, **{"custom": f"my_rows:{name}", "columns": COLUMNS, **block}))


HELPED = """
# Rows of a shop.
import json, my_helper
from my_helper import shout as loud

def text(row):
    "Words for people."
    return loud(row["query"])  # louder

LIMIT = 3
"""
HELPER = "import os\n\ndef shout(text):\n    return text.upper()\n\ndef unused():\n    pass\n"


@pytest.mark.parametrize(
    ("file", "before", "after", "changed"),
    [
        ("my_rows", "# Rows of a shop.", "", None),
        ("my_rows", "  # louder", "", None),
        ("my_rows", '    "Words for people."\n', '    """Other words."""\n', None),
        ("my_rows", 'loud(row["query"])', 'loud(\n        row["query"]\n    )', None),
        ("my_rows", 'row["query"]', 'row["answer"]', "my_rows.text"),
        ("my_rows", "LIMIT = 3", "LIMIT = 4", "my_rows"),
        ("my_helper", "upper", "lower", "my_helper.shout"),
    ],
)
def test_code_that_does_something_else_is_another_data_set(folder, code, file, before, after, changed):
    def read() -> None:
        for name in ("my_rows", "my_helper"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        source_digests.cache_clear()

    files = {"my_rows": HELPED, "my_helper": HELPER}
    for name, source in files.items():
        (code.parent / f"{name}.py").write_text(source)
    read()
    config, directory = custom(folder), str(code.parent / "checkpoints")
    begun = make_manifest(config)
    write_manifest(begun, directory)

    assert before in files[file]
    (code.parent / f"{file}.py").write_text(files[file].replace(before, after))
    read()
    if changed is None:
        assert make_manifest(config).fingerprint == begun.fingerprint
        assert read_manifest(directory, config) is not None
    else:
        assert make_manifest(config).fingerprint != begun.fingerprint
        words = (
            rf"spec\.trainer\.data\.custom: {re.escape(changed)} has changed since this run began; put the code back"
        )
        with pytest.raises(ConfigurationError, match=words):
            read_manifest(directory, config)


def test_code_of_others_is_not_looked_at(code: Path) -> None:
    assert {name.split(".")[0] for name in source_digests("my_rows:text", "data.custom")} == {"my_rows"}
    assert {name.split(".")[0] for name in source_digests("json:dumps", "data.custom")} == {"json"}


@pytest.mark.usefixtures("code")
def test_ids_in_the_place_of_texts_are_another_data_set(folder):
    texts, ids = (make_manifest(custom(folder, **more)) for more in ({}, {"returns": "tokens"}))
    assert texts.fingerprint != ids.fingerprint


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"custom": "my_rows"}, 'custom: "my_rows" is not module:name'),
        ({"custom": "my_rows:text"}, "columns: required with custom, and missing; custom gets the columns"),
        ({"columns": ["query"]}, "custom: required with columns, and missing"),
        ({"returns": "tokens"}, "returns: is about custom, which is missing"),
        ({"custom": "a:b", "columns": ["a"], "returns": "tokens", "lossOn": "all"}, "lossOn: goes with texts"),
        ({"custom": "my_rows:text", "columns": ["a, b"]}, "columns: 'a, b' is no name of a column"),
        ({"custom": "my_rows:text", "columns": ["a"], "template": "{{ a }}"}, "custom: excludes template"),
    ],
)
def test_wrong_block_is_refused(folder, block, said):
    with pytest.raises(ConfigurationError, match=said):
        config_of(folder, **block)
