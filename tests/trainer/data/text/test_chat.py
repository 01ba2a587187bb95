"""Conversations, tools in them and prompts, as Hugging Face transformers writes them (make_chat_reference.py)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.trainer.data.text.make_chat_reference import DATE
from tpujob_trainer.data import DataConfig
from tpujob_trainer.data.column import ChatCall
from tpujob_trainer.data.stream.rows import with_remedy
from tpujob_trainer.data.text.chat import UNASKED, ChatTemplate
from tpujob_trainer.data.text.columns import ConversationError, Made
from tpujob_trainer.data.text.documents import kind_of
from tpujob_trainer.values.errors import ConfigurationError

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "chat_reference.json").read_text())
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def of_case(case: dict[str, Any]) -> ChatTemplate:
    named = case["template"] if isinstance(case["template"], dict) else {"default": case["template"]}
    chat = ChatTemplate.of(named, SPECIAL, "a tokenizer")
    assert chat is not None
    return chat.called(ChatCall(json.dumps(case.get("arguments", {})), DATE))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_text_prompt_and_marks_equal_transformers(case):
    chat, tools = of_case(case), case.get("tools")
    written = chat.written(case["messages"], loss_on="assistant", is_prompt=False, tools=tools)
    assert written.text == case["text"]
    assert chat.written(case["messages"], loss_on="all", is_prompt=True, tools=tools).text == case["prompt"]
    if case["learned"]:
        assert [written.text[begin:end] for begin, end in written.learned] == case["learned"]


def made_of_rows(rows: pa.Table, chat: ChatTemplate, **config: Any) -> Made:
    """Rows as a lane makes texts of them, by a tokenizer of which the template alone is asked."""

    class Tokenizer:
        vocab_size = 256
        chat_template = chat
        special_texts = SPECIAL

    column = DataConfig(path="rows.parquet", messages_column="chat", **config).column()
    struct = rows.to_struct_array() if column.kind == "row" else rows["chat"]
    struct = struct.combine_chunks() if isinstance(struct, pa.ChunkedArray) else struct
    return kind_of(column, Tokenizer())(struct, np.arange(len(rows)))  # type: ignore[arg-type]


def test_tools_that_a_template_never_writes_are_refused():
    case = next(case for case in CASES if case["name"] == "marked")
    rows = pa.Table.from_pylist([{"chat": case["messages"], "tools": CASES[0]["tools"]}])
    with pytest.raises(
        ConfigurationError, match=r"^spec\.trainer\.data\.toolsColumn: the chat template never writes tools"
    ):
        made_of_rows(rows, of_case(case), tools_column="tools")


@pytest.mark.parametrize("as_json", [True, False], ids=["JSON", "Arrow"])
def test_tools_come_from_their_column(as_json):
    case = CASES[0]
    with_tools = {"chat": case["messages"], "tools": case["tools"]}
    without = {"chat": CASES[2]["messages"], "tools": None}
    rows = [with_tools, without]
    if as_json:
        rows = [{key: value and json.dumps(value) for key, value in row.items()} for row in rows]
    made = made_of_rows(pa.Table.from_pylist(rows), of_case({**case, "arguments": {}}), tools_column="tools")
    assert made.column.field("text").to_pylist() == [case["text"], CASES[2]["text"]]
    assert not any(mask.any() for mask in made.skipped.values())


def test_refused_conversations_are_counted_by_what_the_template_says():
    alternating = "Conversation roles must alternate user/assistant"
    chat = ChatTemplate.compiled(
        f"{{% for m in messages %}}{{% if m.role == 'tool' %}}{{{{ raise_exception('{alternating}') }}}}{{% endif %}}"
        "{% if m.role == 'odd' %}{{ raise_exception('Unknown role ' + m.content) }}{% endif %}"
        "{{ m[m.name] + '' if m.name }}{{ m.tone + '' if m.role == 'toned' }}"
        "{{ m.content + '' }}{{ strftime_now('%d') if m.role == 'dated' }}{% endfor %}",
        {},
        "a tokenizer",
    )
    said = [
        [{"role": "tool", "content": "x"}],
        [{"role": "odd", "content": "of this row alone"}],
        [{"role": "toned", "content": "x"}],
        [{"role": "dated", "content": "x"}],
        [{"role": "user", "content": "fine"}],
        [{"role": "user", "content": "x", "name": "of this row alone, too"}],
    ]
    rows = pa.Table.from_pylist([{"chat": json.dumps(each)} for each in said])
    made = made_of_rows(rows, chat, loss_on="all")
    causes = {cause: np.flatnonzero(mask).tolist() for cause, mask in made.skipped.items() if mask.any()}
    assert causes == {
        f"refused by the chat template: {alternating}": [0],
        "refused by the chat template": [1, 5],
        "refused by the chat template: 'dict object' has no attribute 'tone'": [2],
        "refused by the chat template: 'strftime_now' is undefined": [3],
    }
    assert "chatTemplateDate" in with_remedy("refused by the chat template: 'strftime_now' is undefined")
    assert "mend these conversations" in with_remedy(f"refused by the chat template: {alternating}")


def test_nothing_but_an_answer_is_no_prompt():
    chat = of_case(CASES[2])
    with pytest.raises(ConversationError) as refused:
        chat.prompt([{"role": "assistant", "content": "Hi"}])
    assert refused.value.cause == UNASKED


def test_another_call_of_the_template_is_other_data():
    plain = DataConfig(path="a", messages_column="chat").column()
    assert "chatTemplate" not in plain.rules
    thinking = [
        DataConfig(path="a", messages_column="chat", chat_template_arguments={"enable_thinking": value}).column()
        for value in (True, False)
    ]
    assert thinking[0].rules != thinking[1].rules


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ({"chat_template_date": "31.1.2026"}, "chatTemplateDate: '31.1.2026' is no day; write it as 2026-01-31"),
        ({"chat_template_arguments": {"tools": []}}, "chatTemplateArguments: tools is given by the trainer"),
        ({"tools_column": "a, b"}, "toolsColumn: 'a, b' is no name of a column"),
        ({"messages_column": None, "tools_column": "a"}, "toolsColumn: goes with messagesColumn"),
        ({"messages_column": None, "chat_template_date": DATE}, "chatTemplateDate: goes with conversations"),
    ],
)
def test_wrong_settings_are_refused(given, refusal):
    with pytest.raises(ValueError, match=refusal):
        DataConfig(**{"path": "a", "messages_column": "chat", **given})


def test_a_damaged_template_names_the_tokenizer():
    with pytest.raises(ConfigurationError, match=r"data.tokenizer: the chat template of 'mine'"):
        ChatTemplate.compiled("{% for", {}, "mine")
