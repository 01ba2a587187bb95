"""Conversations as text, by the chat template of a tokenizer, and which part of it the assistant writes."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jinja2

from tpujob_trainer.data.column import ChatCall, LossOn
from tpujob_trainer.data.template import RENDER_ERRORS, RefusedByTemplate, Rendered, Template, without_nothing
from tpujob_trainer.data.text.columns import ConversationError
from tpujob_trainer.values.errors import ConfigurationError

REFUSED = "refused by the chat template"
_QUOTED = re.compile("'([^']*)'")
MOST_REASON = 80
"""Characters of a template's own message that are kept in a cause, by which rows are counted and shown."""


@dataclass(frozen=True)
class ChatTemplate:
    """Writes conversations as text."""

    template: Template
    source: str
    """Jinja."""
    given: Mapping[str, Any]
    """Its arguments, apart from the messages."""
    with_tools: ChatTemplate | None = None
    """The one that writes conversations with tools instead; None: this one does."""

    @classmethod
    def of(cls, named: Mapping[str, str], special: Mapping[str, str], name: str) -> ChatTemplate | None:
        """The default template of a tokenizer, with the one named tool_use if there is one; see `compiled`."""
        if "default" not in named:
            return None
        with_tools = cls.compiled(named["tool_use"], special, name) if "tool_use" in named else None
        return replace(cls.compiled(named["default"], special, name), with_tools=with_tools)

    @property
    def writes_tools(self) -> bool:
        """Whether tools are among what it writes or asks for."""
        return "tools" in (self.with_tools or self).template.names

    @classmethod
    def compiled(cls, source: str, special: Mapping[str, str], name: str) -> ChatTemplate:
        """Compiles a template.

        Args:
            source: Jinja.
            special: the texts of bos_token, eos_token and the like.
            name: where it came from, for messages.

        Raises:
            ConfigurationError: it is not Jinja.
        """
        try:
            template = Template(source)
        except jinja2.TemplateError as error:
            problem = " ".join(str(error).split())
            raise ConfigurationError(
                f"spec.trainer.data.tokenizer: the chat template of {name!r}: {problem}"
            ) from error
        # As transformers calls it: templates also test whether these are None.
        return cls(template, source, {"tools": None, "documents": None, **special})

    def called(self, call: ChatCall) -> ChatTemplate:
        """The same template with more arguments."""
        given = {**self.given, **json.loads(call.arguments)}
        if call.date:
            given["strftime_now"] = datetime.datetime.fromisoformat(call.date).strftime
        return replace(self, given=given, with_tools=self.with_tools and self.with_tools.called(call))

    def __call__(self, conversation: Sequence[Any]) -> str:
        """The text of a conversation, with the special tokens written out.

        Raises:
            ConversationError: the template refuses it, or it lacks what the template asks for.
        """
        return self._render(_messages(conversation)).text

    def written(
        self, conversation: Sequence[Any], *, loss_on: LossOn, is_prompt: bool, tools: Sequence[Any] | None = None
    ) -> Rendered:
        """The text of a conversation, or of the prompt for its last answer.

        Args:
            conversation: messages.
            loss_on: which part of the text is learned.
            is_prompt: write it only up to the start of its last answer.
            tools: those that may be called in it.

        Raises:
            ConversationError: as `rendered` and `prompt`.
        """
        if tools is not None and self.with_tools is not None:
            return self.with_tools.written(conversation, loss_on=loss_on, is_prompt=is_prompt, tools=tools)
        if is_prompt:
            return Rendered.whole(self.prompt(conversation, tools=tools))
        return self.rendered(conversation, loss_on, tools=tools)

    def prompt(self, conversation: Sequence[Any], *, tools: Sequence[Any] | None = None) -> str:
        """The text that the assistant is to answer; an answer at the end of the conversation is left out.

        Raises:
            ConversationError: the template refuses it, or there is no message to answer.
        """
        messages = _messages(conversation)
        if messages and _is_answer(messages[-1]):
            messages = messages[:-1]
        if not messages:
            raise ConversationError("no message before the answer", cause=UNASKED)
        return self._render(messages, tools, add_generation_prompt=True).text

    def rendered(self, conversation: Sequence[Any], loss_on: LossOn, *, tools: Sequence[Any] | None = None) -> Rendered:
        """The text of a conversation, and which part of it is learned: all, or what the assistant writes.

        If the template does not mark it with `{% generation %}`, the assistant's turn is the text that the conversation
        up to and including it adds to the conversation before it with the generation prompt. Its end-of-turn token is
        part of it.

        Raises:
            ConversationError: the template refuses it, or the assistant's turns cannot be distinguished from the rest.
        """
        messages = _messages(conversation)
        rendered = self._render(messages, tools)
        if loss_on == "all":
            return Rendered.whole(rendered.text)
        if not self.template.marks_learned:
            rendered = Rendered(rendered.text, self._turns(messages, tools, rendered.text))
        return rendered

    def _turns(self, messages: list[Any], tools: Sequence[Any] | None, text: str) -> tuple[tuple[int, int], ...]:
        found = []
        for at, message in enumerate(messages):
            if not _is_answer(message):
                continue
            before = self._render(messages[:at], tools, add_generation_prompt=True).text
            through = text if at + 1 == len(messages) else self._render(messages[: at + 1], tools).text
            if not (text.startswith(through) and through.startswith(before)):
                raise ConversationError("an earlier turn is written differently", cause=UNTOLD)
            found.append((len(before), len(through)))
        return tuple(found)

    def _render(
        self, messages: list[Any], tools: Sequence[Any] | None = None, *, add_generation_prompt: bool = False
    ) -> Rendered:
        given = {**self.given, "messages": messages, "add_generation_prompt": add_generation_prompt}
        if tools is not None:
            given["tools"] = [without_nothing(tool) for tool in tools]
        try:
            return self.template(**given)
        except RENDER_ERRORS as error:
            raise ConversationError(str(error), cause=self._cause(error)) from error

    def _cause(self, error: Exception) -> str:
        """The cause by which the row is counted: with the template's own words, and none of the conversation's."""
        said = " ".join(str(error).split())
        if isinstance(error, jinja2.UndefinedError):
            is_own = all(name.endswith(" object") or name in self.source for name in _QUOTED.findall(said))
        else:
            is_own = isinstance(error, RefusedByTemplate) and str(error) in self.source
        if not said or not is_own:
            return REFUSED
        return f"{REFUSED}: {said[:MOST_REASON]}"


def _messages(conversation: Sequence[Any]) -> list[Any]:
    """The messages without keys that are null: Arrow gives each message the keys of all.

    Null content beside tool calls is kept, because templates recognize such a message by it. A message without a role,
    or without content, is refused: templates write what is not there as nothing.
    """
    found = []
    for message in conversation:
        kept = without_nothing(message)
        if isinstance(message, Mapping) and "content" in message and kept.get("tool_calls"):
            kept.setdefault("content", None)
        if not isinstance(message, Mapping) or "role" not in kept or not kept.keys() & {"content", "tool_calls"}:
            is_share = isinstance(message, Mapping) and {"from", "value"} <= message.keys()
            raise ConversationError("no role or no content", cause=SHARE_GPT if is_share else INCOMPLETE)
        found.append(kept)
    return found


def _is_answer(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") == "assistant"


INCOMPLETE = "message without role or content"
SHARE_GPT = "message with from and value"
"""As in data sets of ShareGPT."""
UNTOLD = "assistant turns that the chat template rewrites"
"""The text up to a turn is not a prefix of the whole text."""
UNASKED = "conversation without a message before its answer"
"""There is nothing to answer."""
