"""Conversations as text, by the chat template that comes with a tokenizer.

The same surroundings as in Hugging Face transformers (utils/chat_template_utils.py): a sandbox in which a template can
change nothing and call nothing but what is given here. `strftime_now` is not given: a text must not depend on the day.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from tpujob_trainer.data.text.columns import ConversationError
from tpujob_trainer.errors import ConfigurationError


class ChatTemplate:
    """Writes conversations."""

    def __init__(self, source: str, special: Mapping[str, str], name: str) -> None:
        """Compile a template.

        Args:
            source: Jinja.
            special: the texts of bos_token, eos_token and the like.
            name: where it came from, for messages.

        Raises:
            ConfigurationError: it is not Jinja.
        """
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ConfigurationError(f"spec.trainer.data.tokenizer: the chat template of {name!r}: {error}") from error
        self._special = dict(special)

    def __call__(self, conversation: Sequence[Any]) -> str:
        """The text of a conversation, with the special tokens written out.

        Raises:
            ConversationError: the template refuses it, or it lacks what the template asks for.
        """
        messages = [_without_nothing(message) for message in conversation]
        try:
            return self._template.render(messages=messages, add_generation_prompt=False, **self._special)
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            raise ConversationError(str(error)) from error


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what the assistant says; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _without_nothing(message: Any) -> Any:
    """A message without the keys that other messages have and it has not: Arrow gives all of them to each."""
    if isinstance(message, Mapping):
        return {key: _without_nothing(value) for key, value in message.items() if value is not None}
    if isinstance(message, list):
        return [_without_nothing(item) for item in message]
    return message


def _to_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)
