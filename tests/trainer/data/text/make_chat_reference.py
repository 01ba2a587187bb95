"""What Hugging Face transformers writes for conversations, by templates in the forms that published models have.

    python -m tests.trainer.data.text.make_chat_reference [--check]

Needs transformers (requirements/reference.in; `make reference-models` runs it with --check). What it writes is
committed: tests compare with it.
"""

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "chat_reference.json"

CHATML_WITH_TOOLS = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You answer briefly.' }}
    {%- endif %}
    {{- '\\n\\n# Tools\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'assistant' and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls %}
            {%- if call.function is defined %}{%- set call = call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""
ASKS_WHETHER_NONE = """\
{{ bos_token }}{% if tools is not none %}{{ 'TOOLS ' + tools | tojson(indent=2) + '\\n' }}{% endif %}
{% if documents is none %}{% set ns = namespace(count=0) %}{% endif %}
{% for message in messages %}
{% if message.role == 'system' %}{% continue %}{% endif %}
{% set ns.count = ns.count + 1 %}
{% if (message.role == 'user') != (ns.count % 2 == 1) %}
{{ raise_exception('Conversation roles must alternate user/assistant') }}
{% endif %}
[{{ message.role | upper }}] {{ message.content | trim }}{{ eos_token if message.role == 'assistant' }}
{% endfor %}
{% if add_generation_prompt %}[ASSISTANT]{% endif %}
"""
MARKED_AND_DATED = """\
Today is {{ strftime_now('%d %b %Y') }}, effort {{ reasoning_effort | default('medium') }}.
{% for message in messages %}
<|im_start|>{{ message.role }}
{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>
{% endgeneration %}{% else %}{{ message.content }}<|im_end|>
{% endif %}
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
"""
CALLS_BY_NO_CONTENT = """\
{% for message in messages %}
{% if message['role'] == 'assistant' and message['content'] is none %}
CALL {{ message['tool_calls'][0]['function']['name'] }}{{ eos_token }}
{% else %}
{{ message['role'] }}: {{ message['content'] }}
{% endif %}
{% endfor %}
"""
NAMED = {"default": MARKED_AND_DATED, "tool_use": CHATML_WITH_TOOLS}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Weather of a place, in <°C> & more",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
        },
    }
]
ASKED: list[dict[str, Any]] = [{"role": "user", "content": "Wie ist das Wetter in Köln?"}]
CALLED: list[dict[str, Any]] = [
    *ASKED,
    {
        "role": "assistant",
        "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"place": "Köln"}}}],
    },
    {"role": "tool", "content": '{"degrees": 21}'},
    {"role": "assistant", "content": "21 °C."},
]
TURNS = [
    {"role": "system", "content": "Be <kind>."},
    {"role": "user", "content": " Hello "},
    {"role": "assistant", "content": "Hi!"},
    {"role": "user", "content": "Bye"},
    {"role": "assistant", "content": "See you."},
]
CASES: list[dict[str, Any]] = [
    {"name": "tools and calls", "template": CHATML_WITH_TOOLS, "messages": CALLED, "tools": TOOLS},
    {"name": "tools, an own system message", "template": CHATML_WITH_TOOLS, "messages": TURNS, "tools": TOOLS},
    {"name": "no tools", "template": CHATML_WITH_TOOLS, "messages": TURNS},
    {"name": "arguments", "template": CHATML_WITH_TOOLS, "messages": ASKED, "arguments": {"enable_thinking": False}},
    {"name": "tools are none", "template": ASKS_WHETHER_NONE, "messages": TURNS},
    {"name": "tools are not none", "template": ASKS_WHETHER_NONE, "messages": TURNS, "tools": TOOLS},
    {
        "name": "calls by no content",
        "template": CALLS_BY_NO_CONTENT,
        "messages": [{"content": None, **message} for message in CALLED],
    },
    {"name": "tool_use where there are tools", "template": NAMED, "messages": CALLED, "tools": TOOLS},
    {"name": "tool_use where the list of tools is empty", "template": NAMED, "messages": TURNS, "tools": []},
    {"name": "default where there are none", "template": NAMED, "messages": TURNS},
    {"name": "marked", "template": MARKED_AND_DATED, "messages": TURNS, "arguments": {"reasoning_effort": "high"}},
]
DATE = "2026-01-31"


def main() -> int:
    made = [written(case) for case in CASES]
    if sys.argv[1:] == ["--check"]:
        wrong = [case["name"] for case, old in zip(made, json.loads(FILE.read_text()), strict=True) if case != old]
        sys.stdout.write(f"{FILE.name}: {', '.join(wrong) or 'as transformers writes it'}\n")
        return bool(wrong)
    FILE.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    return 0


def written(case: dict[str, Any]) -> dict[str, Any]:
    """The case, with the text, the prompt for its last answer, and the texts that are marked as learned."""
    import datetime

    from transformers.utils import chat_template_utils

    class Day(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromisoformat(DATE)

    chat_template_utils.datetime = Day
    template = case["template"]
    if isinstance(template, dict):
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast

        named = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=template)
        template = named.get_chat_template(tools=case.get("tools"))
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    beside: dict[str, Any] = {
        "chat_template": template,
        "tools": case.get("tools"),
        **special,
        **case.get("arguments", {}),
    }
    messages = case["messages"]
    asked = messages[:-1] if messages[-1]["role"] == "assistant" else messages
    texts, spans = chat_template_utils.render_jinja_template(
        conversations=[messages], return_assistant_tokens_mask="generation" in template, **beside
    )
    prompts, _ = chat_template_utils.render_jinja_template(conversations=[asked], add_generation_prompt=True, **beside)
    learned = [texts[0][begin:end] for begin, end in spans[0]] if spans else None
    return {**case, "text": texts[0], "prompt": prompts[0], "learned": learned}


if __name__ == "__main__":
    sys.exit(main())
