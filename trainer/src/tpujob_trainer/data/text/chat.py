"""Conversations as text, by the chat template that comes with a tokenizer, and which of it the assistant says."""

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
from tpujob_trainer.errors import ConfigurationError

REFUSED = "refused by the chat template"
_QUOTED = re.compile("'([^']*)'")
MOST_REASON = 80
"""Characters of what a template says for a cause, which is counted and shown by name."""


@dataclass(frozen=True)
class ChatTemplate:
    """Writes conversations."""

    template: Template
    source: str
    """Jinja."""
    given: Mapping[str, Any]
    """What it is called with beside the messages."""

    @classmethod
    def compiled(cls, source: str, special: Mapping[str, str], name: str) -> ChatTemplate:
        """Compile a template.

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
        # As transformers calls it: a template asks whether they are none, too.
        return cls(template, source, {"tools": None, "documents": None, **special})

    def called(self, call: ChatCall) -> ChatTemplate:
        """The same template, called with more."""
        given = {**self.given, **json.loads(call.arguments)}
        if call.date:
            given["strftime_now"] = datetime.datetime.fromisoformat(call.date).strftime
        return replace(self, given=given)

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
            loss_on: what of the text is learned.
            is_prompt: write it up to where its last answer begins.
            tools: what may be called in it.

        Raises:
            ConversationError: as `rendered` and `prompt`.
        """
        if is_prompt:
            return Rendered.whole(self.prompt(conversation, tools=tools))
        return self.rendered(conversation, loss_on, tools=tools)

    def prompt(self, conversation: Sequence[Any], *, tools: Sequence[Any] | None = None) -> str:
        """The text after which the assistant answers; where the conversation ends with an answer, without that one.

        Raises:
            ConversationError: the template refuses it, or nothing is left to be answered.
        """
        messages = _messages(conversation)
        if messages and _is_answer(messages[-1]):
            messages = messages[:-1]
        if not messages:
            raise ConversationError("no message before the answer", cause=UNASKED)
        return self._render(messages, tools, add_generation_prompt=True).text

    def rendered(self, conversation: Sequence[Any], loss_on: LossOn, *, tools: Sequence[Any] | None = None) -> Rendered:
        """The text of a conversation, and what of it is learned: all, or what the assistant says.

        Where the template does not mark it with `{% generation %}`, the assistant's turn is what the conversation up to
        it has more than the conversation before it with the prompt to answer. Its end-of-turn token is part of it.

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
        if tools:
            given["tools"] = [without_nothing(tool) for tool in tools]
        try:
            return self.template(**given)
        except RENDER_ERRORS as error:
            raise ConversationError(str(error), cause=self._cause(error)) from error

    def _cause(self, error: Exception) -> str:
        """What it is counted as: the template's own words, none of the conversation's."""
        said = " ".join(str(error).split())
        if isinstance(error, jinja2.UndefinedError):
            is_own = all(name.endswith(" object") or name in self.source for name in _QUOTED.findall(said))
        else:
            is_own = isinstance(error, RefusedByTemplate) and str(error) in self.source
        if not said or not is_own:
            return REFUSED
        return f"{REFUSED}: {said[:MOST_REASON]}"


def _messages(conversation: Sequence[Any]) -> list[Any]:
    """The messages, of which keys that are null are not there: Arrow gives each all keys that any has.

    But content beside calls of tools may be none, by which templates know such a message.
    """
    found = []
    for message in conversation:
        kept = without_nothing(message)
        if isinstance(message, Mapping) and "content" in message and kept.get("tool_calls"):
            kept.setdefault("content", None)
        found.append(kept)
    return found


def _is_answer(message: Any) -> bool:
    return isinstance(message, Mapping) and message.get("role") == "assistant"


UNTOLD = "assistant turns that the chat template rewrites"
"""The text up to a turn is not how the whole text begins."""
UNASKED = "conversation without a message before its answer"
"""There is nothing to go on behind."""
