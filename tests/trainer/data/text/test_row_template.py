"""Rows with any columns as texts and conversations, beside what a plain function makes of them."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tokenizers

from tests.trainer.data.data_files import example, write_array_records, write_tfrecords
from tpujob_trainer.data import BatchLoader, DataConfig, batches_digest, load_tokenizer, make_manifest, plan_lanes
from tpujob_trainer.data.column import Column
from tpujob_trainer.data.text.columns import ConversationError
from tpujob_trainer.data.text.row_template import row_renderer
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.from_mapping import parse

ROWS = 1000
TEMPLATE = (
    "<|im_start|>user\n{{ query }}<|im_end|>\n<|im_start|>assistant\n<think>\n{{ synthetic_reasoning }}\n</think>\n"
    "{{ synthetic_answer }}<|im_end|>\n"
)
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES = [
    {"role": "user", "content": "{{ query }}"},
    {"role": "assistant", "content": "<think>\n{{ synthetic_reasoning }}\n</think>\n{{ synthetic_answer }}"},
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def as_author_would_write(row) -> str:
    return (
        f"<|im_start|>user\n{row['query']}<|im_end|>\n<|im_start|>assistant\n"
        f"<think>\n{row['synthetic_reasoning']}\n</think>\n{row['synthetic_answer']}<|im_end|>\n"
    )


@pytest.fixture(scope="module")
def rows():
    words = ["why", "does", "the", "quick", "brown", "fox", "jump", "Grüße", "😀", "{{", "x", "}}", "\\n", "\n"]
    chance = random.Random(5)  # noqa: S311 - text for a test

    def text(number: int) -> str:
        return f"{number}: " + " ".join(chance.choices(words, k=chance.randint(1, 30)))

    return [
        {"id": at, "query": text(at), "synthetic_reasoning": text(at), "synthetic_answer": text(at)}
        for at in range(ROWS)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows):
    """The rows, and a tokenizer that was trained on them."""
    folder = tmp_path_factory.mktemp("synth")
    pq.write_table(pa.Table.from_pylist(rows), folder / "synth.parquet", row_group_size=64)
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=SPECIAL,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator([row["query"] for row in rows], trainer)
    (folder / "tokenizer.json").write_text(model.to_str())
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>", "chat_template": CHAT}))
    return folder


def config_of(folder, **block) -> DataConfig:
    given = {"path": str(folder / "synth.parquet"), "tokenizer": str(folder), "epochs": 1, **block}
    return parse(DataConfig, given, "spec.trainer.data")


def documents(config, *, length=64):
    """Ids and learned ids of each document of one pass, and what became of the rows."""
    tokenizer = load_tokenizer(config)
    manifest = make_manifest(config)
    plan = plan_lanes(manifest, config, batch_size=1, seed=0)
    tokens, learned = [], []
    with BatchLoader(manifest, tokenizer, plan, length, rows=[0], prefetch=0) as loader:
        while True:
            batch = next(loader)
            is_real = batch.segment_ids[0] > 0
            tokens += batch.inputs[0][is_real].tolist()
            learned += batch.loss_mask[0][is_real].tolist()
            if not batch.batches_left:
                # The very last token is an input as well, unless the row ends with its target.
                return [*tokens, *batch.targets[0, -1:][is_real[-1:]].tolist()], learned, loader.counts


def split(tokens, eos):
    found, at = [], 0
    for end in [at for at, token in enumerate(tokens) if token == eos]:
        found.append(tokens[at : end + 1])
        at = end + 1
    return found


def test_template_gives_the_ids_of_a_plain_function(folder, rows):
    config = config_of(folder, template=TEMPLATE)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    eos = load_tokenizer(config).eos

    tokens, _, counts = documents(config)

    plain = [[*tokenizer.encode(as_author_would_write(row), add_special_tokens=False).ids, eos] for row in rows]
    assert sorted(split(tokens, eos)) == sorted(plain)
    assert (counts.used, counts.skipped) == (ROWS, 0)


def test_messages_give_the_ids_of_a_plain_function(folder, rows):
    config = config_of(folder, messages=MESSAGES, lossOn="all")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    tokens, _, counts = documents(config)

    plain = [tokenizer.encode(as_author_would_write(row), add_special_tokens=False).ids for row in rows]
    assert sorted(tokens) == sorted(token for ids in plain for token in ids)
    assert counts.used == ROWS


def test_messages_are_learned_where_the_assistant_speaks(folder, rows):
    tokens, learned, _ = documents(config_of(folder, messages=MESSAGES, maxRows=1))
    tokenizer = load_tokenizer(config_of(folder))

    text = tokenizer.decode([token for token, is_learned in zip(tokens[1:], learned, strict=False) if is_learned])

    row = rows[0]
    assert text == f"<think>\n{row['synthetic_reasoning']}\n</think>\n{row['synthetic_answer']}\n"


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tfrecord", "arrayrecord"])
def test_every_format_gives_the_columns(tmp_path, folder, rows, kind):
    some = rows[:20]
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(some), tmp_path / "a.parquet")
    elif kind == "jsonl":
        (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in some))
    else:
        records = [example(**{key: value for key, value in row.items() if key != "id"}) for row in some]
        write = write_tfrecords if kind == "tfrecord" else write_array_records
        write(tmp_path / ("a.tfrecord" if kind == "tfrecord" else "a.array_record"), records)
    expected, _, _ = documents(config_of(folder, template=TEMPLATE, maxRows=20))

    tokens, _, counts = documents(config_of(folder, template=TEMPLATE, path=str(tmp_path)))

    eos = load_tokenizer(config_of(folder)).eos
    assert sorted(split(tokens, eos)) == sorted(split(expected, eos))
    assert counts.used == 20


@pytest.mark.parametrize("block", [{"template": TEMPLATE}, {"messages": MESSAGES}], ids=["template", "messages"])
def test_batches_are_equal_on_any_number_of_processes(folder, block):
    config = config_of(folder, **block)
    tokenizer, manifest = load_tokenizer(config), make_manifest(config, batch_size=8)
    plan = plan_lanes(manifest, config, batch_size=8, seed=3)

    def batches(processes, count, state=None):
        loaders = [
            BatchLoader(manifest, tokenizer, plan, 96, rows=rows, state=state, prefetch=0)
            for rows in np.split(np.arange(8), processes)
        ]
        made = [[next(loader) for loader in loaders] for _ in range(count)]
        return [
            {
                name: np.concatenate([getattr(part, name) for part in parts])
                for name in ("inputs", "targets", "loss_mask", "segment_ids", "state")
            }
            for parts in made
        ]

    whole = batches(1, 10)
    for processes in (2, 4):
        begun = batches(processes, 4)
        resumed = batches(6 - processes, 6, begun[-1]["state"])
        for expected, found in zip(whole, [*begun, *resumed], strict=True):
            for name, array in expected.items():
                np.testing.assert_array_equal(found[name], array, err_msg=name)
        assert batches_digest(whole[-1]["state"]) == batches_digest(resumed[-1]["state"])


@pytest.mark.parametrize(
    ("special", "used", "im_starts"),
    [("refuse", 2, 4), ("text", 3, 0), ("allow", 3, 7)],
    ids=["refuse", "text", "allow"],
)
def test_special_tokens_in_values(tmp_path, folder, rows, special, used, im_starts):
    given = [*rows[:2], {**rows[2], "query": "say <|im_start|>"}]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in given))
    config = config_of(folder, path=str(tmp_path), template=TEMPLATE, specialTokens=special)

    tokens, _, counts = documents(config)

    assert counts.used == used
    assert tokens.count(1) == im_starts
    if special == "refuse":
        assert "specialTokens: text takes it for characters, allow for the token" in counts.summary()


@pytest.mark.parametrize(("special", "used"), [(None, 1), ("text", 2), ("allow", 2)])
def test_special_tokens_in_a_column_of_text(tmp_path, folder, special, used):
    (tmp_path / "a.jsonl").write_text('{"text": "plain"}\n{"text": "<|im_start|>user"}\n')
    block = {} if special is None else {"specialTokens": special}

    tokens, _, counts = documents(config_of(folder, path=str(tmp_path), **block))

    assert counts.used == used
    assert tokens.count(1) == (special == "allow")


def test_null_column_is_refused_with_its_remedy(tmp_path, folder, rows):
    given = [rows[0], {**rows[1], "query": None}]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in given))

    _, _, counts = documents(config_of(folder, path=str(tmp_path), template=TEMPLATE))
    _, _, tolerant = documents(config_of(folder, path=str(tmp_path), template="{{ query | default('none') }}"))

    assert counts.by_cause == {"refused by the template": 1}
    assert "`default`" in counts.summary()
    assert tolerant.skipped == 0


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"template": "{{ query"}, r"data\.template: not a Jinja template"),
        ({"template": "the same"}, r"data\.template: names no column"),
        ({"template": "{{ a }}", "messages": MESSAGES}, r"data\.messages: excludes template"),
        ({"template": "{{ a }}", "lossOn": "assistant"}, r"data\.lossOn: assistant goes with"),
        ({"template": "{{ nothing }}"}, r"data\.template: 'nothing' is not a column of .*query"),
        ({"tokensColumn": "id", "specialTokens": "text"}, r"data\.specialTokens: goes with texts"),
    ],
)
def test_wrong_template_is_refused_by_name(folder, block, message):
    with pytest.raises(ConfigurationError, match=message):
        make_manifest(config_of(folder, **block))


def test_another_template_is_another_run(folder):
    one, other = (make_manifest(config_of(folder, template=text)) for text in ("{{ query }}", "{{ query }}."))
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    "how",
    [{"template": "{{ query }}"}, {"messages": (("user", "{{ query }}"), ("assistant", "{{ answer }}"))}],
    ids=["template", "messages"],
)
def test_row_without_what_a_template_writes_is_refused(folder, how):
    column = Column("row", "query, answer", "spec.trainer.data.messages", **how)
    render = row_renderer(column, {}, load_tokenizer(config_of(folder)).chat_template)

    assert "why" in render({"query": "why", "answer": "so"}).text
    with pytest.raises(ConversationError, match="'query' is undefined"):
        render({"query": None, "answer": "so"})
