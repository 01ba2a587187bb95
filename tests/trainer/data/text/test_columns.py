"""Conversations, token ids, and rows that are no use."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencepiece
import tokenizers

from tests.trainer.data.data_files import write_jsonl
from tests.trainer.data.parquet_files import BYTES, write_groups
from tpujob_trainer.data import (
    BatchLoader,
    DataConfig,
    LanePlan,
    Tokenizer,
    load_tokenizer,
    make_manifest,
    plan_lanes,
    read_manifest,
    write_manifest,
)
from tpujob_trainer.data.template import Rendered
from tpujob_trainer.data.text import columns
from tpujob_trainer.data.text.chat import ChatTemplate
from tpujob_trainer.values.errors import ConfigurationError

TEMPLATE = """{{ bos_token }}{% for message in messages %}
{% if message['role'] not in ['user', 'assistant'] %}{{ raise_exception('Unknown role: ' + message['role']) }}{% endif %}
<|{{ message['role'] }}|>{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] | trim }}{% endgeneration %}
{% else %}{{ message['content'] | trim }}{% endif %}{{ eos_token }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"""  # noqa: E501

TALKS = [
    [{"role": "user", "content": " hello "}, {"role": "assistant", "content": "fox"}],
    [{"role": "assistant", "content": "dog"}],
]
WRITTEN = ["<s><|user|>hello</s>\n<|assistant|>fox</s>\n", "<s><|assistant|>dog</s>\n"]


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    """A byte-level BPE with marks for roles, and a template in its configuration."""
    folder = tmp_path_factory.mktemp("tokenizer")
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>", "<|user|>", "<|assistant|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 9, trainer)
    (folder / "tokenizer.json").write_text(model.to_str())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE})
    )
    return folder


def load(folder) -> Tokenizer:
    return load_tokenizer(DataConfig(path="p", tokenizer=str(folder)))


def one_pass(config: DataConfig, tokenizer: Tokenizer, length: int = 16):
    """All documents of one pass over the data, and what became of the rows."""
    manifest = make_manifest(config)
    plan = plan_lanes(manifest, config, batch_size=1, seed=0)
    with BatchLoader(manifest, tokenizer, plan, length, rows=[0], prefetch=0) as loader:
        batches = [next(loader)]
        while batches[-1].batches_left:
            batches.append(next(loader))
    inputs = np.concatenate([batch.inputs[0] for batch in batches])
    tokens = [*inputs.tolist(), int(batches[-1].targets[0, -1])]
    return tokens, batches, loader.counts


@pytest.mark.parametrize("name", ["parquet", "parquet with json", "jsonl"])
def test_conversations_are_written_by_the_template(tmp_path, tokenizer_folder, name):
    if name == "jsonl":
        (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"messages": talk}) for talk in TALKS))
    else:
        column = TALKS if name == "parquet" else [json.dumps(talk) for talk in TALKS]
        pq.write_table(pa.table({"messages": column}), tmp_path / "a.parquet")
    tokenizer = load(tokenizer_folder)

    tokens, _, counts = one_pass(DataConfig(path=str(tmp_path), messages_column="messages", epochs=1), tokenizer)

    expected = [tokenizer.encode([text])[0] for text in WRITTEN]
    text = [token for document in expected for token in document]
    assert tokens[: len(text)] in (text, [*expected[1], *expected[0]])
    assert counts.used == 2
    assert {tokenizer.bos, tokenizer.eos} <= set(tokens)


PLAIN_TEMPLATE = TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
REWRITING_TEMPLATE = "{{ messages | length }}" + PLAIN_TEMPLATE


@pytest.mark.parametrize(
    ("template", "learned"),
    [(TEMPLATE, "foxdog"), (PLAIN_TEMPLATE, "\nfox</s>\n\ndog</s>\n")],
    ids=["marked by generation", "found by the prompt"],
)
def test_only_the_assistant_is_learned(tmp_path, tokenizer_folder, template, learned):
    tokenizer = with_template(tmp_path, tokenizer_folder, template)
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"messages": talk}) for talk in (TALKS[0], TALKS[1])))
    config = DataConfig(path=str(tmp_path / "a.jsonl"), messages_column="messages", epochs=1)

    _, batches, _ = one_pass(config, tokenizer, length=4)

    targets = np.concatenate([batch.targets[batch.loss_mask] for batch in batches]).tolist()
    names = {tokenizer.eos: "</s>"}
    text = "".join(names.get(token) or tokenizer.decode([token]) for token in targets)
    assert sorted(text) == sorted(learned)


def test_all_is_learned_if_asked_for(tmp_path, tokenizer_folder):
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": TALKS[0]}))
    config = DataConfig(path=str(tmp_path / "a.jsonl"), messages_column="messages", epochs=1, loss_on="all")

    _, batches, _ = one_pass(config, load(tokenizer_folder), length=64)

    assert batches[0].loss_mask.sum() == len(load(tokenizer_folder).encode([WRITTEN[0]])[0]) - 1


def test_turns_that_the_template_rewrites_are_refused(tmp_path, tokenizer_folder):
    tokenizer = with_template(tmp_path, tokenizer_folder, REWRITING_TEMPLATE)
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": [*TALKS[0], *TALKS[0]]}))
    config = DataConfig(path=str(tmp_path / "a.jsonl"), messages_column="messages", epochs=1)

    with pytest.raises(ConfigurationError, match=r"no usable text .*1 assistant turns .*generation.*lossOn"):
        one_pass(config, tokenizer)


def test_what_is_learned_is_part_of_the_run(tmp_path, tokenizer_folder):
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": TALKS[0]}))
    config = DataConfig(path=str(tmp_path / "a.jsonl"), messages_column="messages", loss_on="all")
    write_manifest(make_manifest(config), str(tmp_path))

    with pytest.raises(
        ConfigurationError, match=r"spec.trainer.data.lossOn: 'assistant', but this run began with 'all'"
    ):
        read_manifest(str(tmp_path), DataConfig(path=str(tmp_path / "a.jsonl"), messages_column="messages"))


def with_template(folder, tokenizer_folder, template) -> Tokenizer:
    (folder / "tokenizer.json").write_bytes((tokenizer_folder / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    (folder / "chat_template.jinja").write_text(template)
    return load(folder)


@pytest.mark.parametrize("text", ["plain text", " two  spaces", "Grüße, 😀 <|user|>x</s> end"])
@pytest.mark.parametrize("kind", ["bytes", "bpe", "sentencepiece"])
def test_offsets_cover_the_text(tmp_path, tokenizer_folder, kind, text):
    tokenizer = tokenizer_of(kind, tmp_path, tokenizer_folder)

    ((ids, offsets),) = tokenizer.encode_with_offsets([text])

    assert [ids.tolist()] == tokenizer.encode([text])
    covered = {at for begin, end in offsets.tolist() for at in range(begin, end)}
    assert covered == set(range(len(text)))


def tokenizer_of(kind: str, folder, tokenizer_folder) -> Tokenizer:
    if kind == "bytes":
        return load_tokenizer(DataConfig(path="p"))
    if kind == "bpe":
        return load(tokenizer_folder)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the quick brown fox jumps over the lazy dog", "plain text with two spaces"] * 5),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        minloglevel=2,
    )
    return load_tokenizer(DataConfig(path="p", tokenizer=str(folder / "tokenizer.model")))


def test_conversation_that_the_template_refuses_is_skipped(tmp_path, tokenizer_folder):
    talks = [*TALKS, [{"role": "robot", "content": "beep"}], [], None]
    lines = [*(json.dumps({"messages": talk}) for talk in talks), '{"messages": "hello"}', '{"messages": {}}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    config = DataConfig(path=str(tmp_path), messages_column="messages", epochs=1)

    _, _, counts = one_pass(config, load(tokenizer_folder))

    assert counts.used == 2
    assert counts.by_cause == {"refused by the chat template": 1, "empty": 1, "null": 1, "malformed": 2}


@pytest.mark.parametrize(
    "attack",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% for m in messages %}{{ m.update({'a': 1}) }}{% endfor %}",
        "{{ cycler.__init__.__globals__.os.system('false') }}",
    ],
    ids=["classes", "changes", "system"],
)
def test_template_can_do_nothing_but_write(tmp_path, tokenizer_folder, attack):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tokenizer_folder / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text(attack)
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"messages": talk}) for talk in TALKS))
    config = DataConfig(path=str(tmp_path / "a.jsonl"), messages_column="messages", epochs=1)

    with pytest.raises(ConfigurationError, match=r"no usable text .*2 refused by the chat template"):
        one_pass(config, load(tmp_path))


def test_template_depends_on_no_clock(tmp_path, tokenizer_folder):
    (tmp_path / "tokenizer.json").write_bytes((tokenizer_folder / "tokenizer.json").read_bytes())
    template = "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}the day{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(template)

    render = load(tmp_path).chat_template

    assert render is not None
    assert render(TALKS[0]) == "the day"


def test_conversations_need_a_template(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": TALKS[0]}))

    with pytest.raises(ConfigurationError, match=r"^spec\.trainer\.data\.messagesColumn: .* no chat template; name"):
        one_pass(DataConfig(path=str(tmp_path), messages_column="messages"), BYTES)


def test_another_template_is_another_tokenizer(tmp_path, tokenizer_folder):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((tokenizer_folder / name).read_bytes())
    same = load(tmp_path).fingerprint
    (tmp_path / "chat_template.jinja").write_text("other")

    assert same == load(tokenizer_folder).fingerprint
    assert load(tmp_path).fingerprint != same


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.uint16()), pa.list_(pa.int64())], ids=str)
def test_ids_are_taken_as_they_are(tmp_path, kind):
    rows = [[1, 2, 3], None, [], [7], [300, 1], [5, 6]]
    pq.write_table(pa.table({"ids": pa.array(rows, kind)}), tmp_path / "a.parquet")

    tokens, batches, counts = one_pass(DataConfig(path=str(tmp_path), tokens_column="ids", epochs=1), BYTES, length=8)

    assert sorted(token for token in tokens if token) == [1, 2, 3, 5, 6, 7]
    assert counts.by_cause == {"null": 1, "empty": 1, "id outside of the vocabulary": 1}
    assert batches[0].segment_ids.max() == 3


def test_ids_of_the_wrong_type_are_told(tmp_path):
    pq.write_table(pa.table({"ids": [0.5], "good": [[1]]}), tmp_path / "a.parquet")

    with pytest.raises(ConfigurationError, match=r"tokensColumn: 'ids' of .* holds double, not tokens .*: good$"):
        make_manifest(DataConfig(path=str(tmp_path), tokens_column="ids"))


def test_text_with_a_special_token_is_skipped(tmp_path, tokenizer_folder):
    write_groups(tmp_path / "a.parquet", [["the fox", "the </s> fox", "<|user|>", "the dog"]])
    tokenizer = load(tokenizer_folder)

    tokens, _, counts = one_pass(DataConfig(path=str(tmp_path), epochs=1), tokenizer)

    assert counts.used == 2
    assert counts.by_cause == {"special token in the text": 2}
    assert sorted(tokenizer.decode(tokens).split("the")) == ["", " dog", " fox"]
    assert "a.parquet row 1" in counts.summary()


def test_resume_steps_over_rows_with_special_tokens(tmp_path, tokenizer_folder):
    write_groups(tmp_path / "a.parquet", [["the </s> fox" if row % 3 else f"dog {row}" for row in range(40)]])
    config = DataConfig(path=str(tmp_path))
    manifest, tokenizer = make_manifest(config), load(tokenizer_folder)
    plan = LanePlan(manifest.num_units, 1, 1, 0)

    def batches(count, state=None):
        with BatchLoader(manifest, tokenizer, plan, 9, rows=[0], state=state, prefetch=0) as loader:
            return [next(loader) for _ in range(count)]

    whole = batches(20)
    for stop in range(1, 19):
        (after,) = batches(1, whole[stop - 1].state)
        assert (after.inputs.tolist(), after.state.tolist()) == (
            whole[stop].inputs.tolist(),
            whole[stop].state.tolist(),
        )


def test_too_many_useless_rows_end_the_run(tmp_path):
    write_groups(tmp_path / "a.parquet", [[None if row % 5 == 0 else "text" for row in range(2000)]])

    with pytest.raises(
        ConfigurationError,
        match=r"maxSkippedFraction: 400 of the first 2000 rows .* more than 0\.1 .*400 null: a\.parquet row 0, a",
    ):
        one_pass(DataConfig(path=str(tmp_path), epochs=1), BYTES)
    one_pass(DataConfig(path=str(tmp_path), epochs=1, max_skipped_fraction=0.2), BYTES)


def test_malformed_lines_are_named(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", [f"row {row}" for row in range(50)])
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("{not json\n")

    _, _, counts = one_pass(DataConfig(path=str(tmp_path), epochs=1), BYTES)

    assert counts.summary() == "1 malformed: a.jsonl row 50"
    assert counts.used == 50


@pytest.fixture(scope="module")
def sentencepiece_model(tmp_path_factory):
    import sentencepiece

    folder = tmp_path_factory.mktemp("spm")
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 20)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=5,
    )
    (folder / "text.txt").unlink()
    return folder


def test_sentencepiece_there_and_back(sentencepiece_model):
    tokenizer = load(sentencepiece_model)
    texts = ["the quick fox", "naïve → 日本"]

    assert [tokenizer.decode(ids) for ids in tokenizer.encode(texts)] == texts
    assert (tokenizer.bos, tokenizer.eos) == (1, 2)
    assert load_tokenizer(DataConfig(path="p", tokenizer=str(sentencepiece_model / "tokenizer.model"))).fingerprint == (
        tokenizer.fingerprint
    )


def test_sentencepiece_marks_are_written_where_asked_for(sentencepiece_model):
    tokenizer = load(sentencepiece_model)
    ids = [*tokenizer.encode(["the dog"])[0], tokenizer.eos, *tokenizer.encode(["a fox"])[0]]
    assert "</s>" not in tokenizer.decode(ids)
    assert tokenizer.decode(ids, with_special=True) == "the dog</s>a fox"


def test_sentencepiece_documents_stand_between_their_marks(sentencepiece_model):
    tokenizer = load(sentencepiece_model)
    texts = ["the dog", "a </s> fox", "lazy"]

    tokens, lengths = tokenizer.documents(pa.array(texts, pa.large_string()))

    expected = [[1, *tokenizer.encode([text])[0], 2] for text in ("the dog", "lazy")]
    assert tokens.tolist() == [token for document in expected for token in document]
    assert lengths.tolist() == [len(expected[0]), 0, len(expected[1])]


def test_other_file_is_no_sentencepiece_model(tmp_path):
    (tmp_path / "bad.model").write_bytes(b"hello")

    with pytest.raises(ConfigurationError, match=r"tokenizer: '.*bad\.model' is not a SentencePiece model"):
        load_tokenizer(DataConfig(path="p", tokenizer=str(tmp_path / "bad.model")))


def test_sizes_of_ids_are_their_bytes():
    rows = pa.chunked_array([pa.array([[1, 2, 3], [], [9], None, [10], [-1], [0], [2, None]])])
    made = columns.tokens(rows, np.arange(8)[::-1], vocab_size=10)

    assert made.sizes.tolist() == [8, 4, 4, 4, 0, 4, 0, 12]
    reasons = {cause: np.flatnonzero(rows).tolist() for cause, rows in made.skipped.items()}
    assert reasons == {"null": [4], "empty": [6], "id outside of the vocabulary": [0, 2, 3]}
    assert made.take(np.array([7])).column.to_pylist() == [[1, 2, 3]]


SAID = {
    # name: (value, what the template makes of it, its text, why it is skipped where what is learned is marked)
    "all is learned": ("a", Rendered.whole("text"), "text", None),
    "nothing is learned": ("a", Rendered("text", ()), "text", columns.NOT_LEARNED),
    "no text": ("a", Rendered.whole(""), None, "empty"),
    "no text, and nothing is learned": ("a", Rendered("", ()), None, "empty"),
    "no value": (None, None, None, "null"),
    "no content": ([], None, None, "empty"),
    "unreadable": (columns.UNREADABLE, None, None, "refused"),
    "a deep text": (columns._conversation("[" * 9000), None, None, "refused"),
    "refused": ("a", columns.ConversationError("no"), None, "refused"),
    "refused for a cause": ("a", columns.ConversationError("no", cause="cause"), None, "cause"),
    "no UTF-8": ("a", Rendered.whole("\ud800"), None, "not UTF-8"),
}


@pytest.mark.parametrize("marks_learned", [False, True])
@pytest.mark.parametrize(("value", "made", "text", "cause"), SAID.values(), ids=SAID.keys())
def test_each_row_is_text_or_skipped_for_one_cause(value, made, text, cause, marks_learned):
    def render(given):
        if given == "another":
            return Rendered.whole("b")
        if isinstance(made, Exception):
            raise made
        return made

    found = columns.rendered([value, "another"], render, refusal="refused", marks_learned=marks_learned)

    wanted = None if cause == columns.NOT_LEARNED and not marks_learned else cause
    assert [name for name, rows in found.skipped.items() if rows[0]] == ([] if wanted is None else [wanted])
    assert not any(rows[1] for rows in found.skipped.values())
    texts = found.column.field("text") if marks_learned else found.column
    if wanted is None:
        assert texts.to_pylist() == [text, "b"]
        assert found.sizes.tolist() == [len(text), 1]


def test_chat_template_of_brackets_without_end_is_refused_in_one_line():
    with pytest.raises(
        ConfigurationError, match=r"^spec\.trainer\.data\.tokenizer: the chat template of 'a': .*too deeply"
    ):
        ChatTemplate.compiled("{{" + "(" * 20_000, {}, "a")


@pytest.mark.parametrize("loss_on", ["assistant", "all"])
@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ({"from": "human", "value": "hello"}, "message with from and value"),
        ({"role": "user"}, "message without role or content"),
        ({"role": "user", "content": None}, "message without role or content"),
        ({"content": "hello"}, "message without role or content"),
        ("hello", "message without role or content"),
    ],
)
def test_messages_without_role_or_content_are_counted_and_named(tmp_path, tokenizer_folder, message, cause, loss_on):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"talk": [message, *TALKS[0]]}) + "\n" for _ in range(100)))
    config = DataConfig(path=str(tmp_path), messages_column="talk", epochs=1, loss_on=loss_on)

    with pytest.raises(ConfigurationError, match=rf"^spec.trainer.data.messagesColumn: .*\(100 {cause}"):
        one_pass(config, load(tokenizer_folder))
