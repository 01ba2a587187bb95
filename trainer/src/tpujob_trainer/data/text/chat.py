"""Conversations as text, by the chat template that comes with a tokenizer, and which of it the assistant says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from tpujob_trainer.data.config import LossOn
from tpujob_trainer.data.template import RENDER_ERRORS, Rendered, Template, without_nothing
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
        try:
            self._template = Template(source)
        except jinja2.TemplateError as error:
            problem = " ".join(str(error).split())
            raise ConfigurationError(
                f"spec.trainer.data.tokenizer: the chat template of {name!r}: {problem}"
            ) from error
        self._special = dict(special)

    def __call__(self, conversation: Sequence[Any]) -> str:
        """The text of a conversation, with the special tokens written out.

        Raises:
            ConversationError: the template refuses it, or it lacks what the template asks for.
        """
        return self._render([without_nothing(message) for message in conversation]).text

    def rendered(self, conversation: Sequence[Any], loss_on: LossOn) -> Rendered:
        """The text of a conversation, and what of it is learned: all, or what the assistant says.

        Where the template does not mark it with `{% generation %}`, the assistant's turn is what the conversation up to
        it has more than the conversation before it with the prompt to answer. Its end-of-turn token is part of it.

        Raises:
            ConversationError: the template refuses it, or the assistant's turns cannot be distinguished from the rest.
        """
        messages = [without_nothing(message) for message in conversation]
        rendered = self._render(messages)
        if loss_on == "all":
            return Rendered.whole(rendered.text)
        if not self._template.marks_learned:
            rendered = Rendered(rendered.text, self._turns(messages, rendered.text))
        return rendered

    def _turns(self, messages: list[Any], text: str) -> tuple[tuple[int, int], ...]:
        found = []
        for at, message in enumerate(messages):
            if not isinstance(message, Mapping) or message.get("role") != "assistant":
                continue
            before = self._render(messages[:at], add_generation_prompt=True).text
            through = text if at + 1 == len(messages) else self._render(messages[: at + 1]).text
            if not (text.startswith(through) and through.startswith(before)):
                raise ConversationError("an earlier turn is written differently", cause=UNTOLD)
            found.append((len(before), len(through)))
        return tuple(found)

    def _render(self, messages: list[Any], *, add_generation_prompt: bool = False) -> Rendered:
        try:
            return self._template(messages=messages, add_generation_prompt=add_generation_prompt, **self._special)
        except RENDER_ERRORS as error:
            raise ConversationError(str(error)) from error


UNTOLD = "assistant turns that the chat template rewrites"
"""The text up to a turn is not how the whole text begins."""
