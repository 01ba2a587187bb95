"""Rows with any columns as texts or conversations, by the templates of `data.template` and `data.messages`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpujob_trainer.data.config import Column
from tpujob_trainer.data.template import RENDER_ERRORS, Rendered, Template, without_nothing
from tpujob_trainer.data.text.chat import ChatTemplate
from tpujob_trainer.data.text.columns import ConversationError, Render


def row_renderer(column: Column, special: Mapping[str, str], chat: ChatTemplate | None) -> Render:
    """What makes a text of a row, and says what of it is learned.

    A column that is null is not there: a template that writes it refuses the row, one that asks for it
    (`{% if answer is defined %}`, `default`) need not.

    Args:
        column: with the templates.
        special: the texts of bos_token, eos_token and the like.
        chat: writes conversations; needed for `messages`.
    """
    if column.template is not None:
        text = Template(column.template, strict=True)

        def write(row: Mapping[str, Any]) -> Rendered:
            rendered = _call(text, row, special)
            return rendered if column.loss_on == "assistant" else Rendered.whole(rendered.text)

        return write
    assert chat is not None
    parts = [(role, Template(content, strict=True)) for role, content in column.messages]

    def converse(row: Mapping[str, Any]) -> Rendered:
        conversation = [{"role": role, "content": _call(part, row, special).text} for role, part in parts]
        return chat.rendered(conversation, column.loss_on)

    return converse


def _call(template: Template, row: Mapping[str, Any], special: Mapping[str, str]) -> Rendered:
    try:
        return template(**{**special, **without_nothing(_decoded(row))})
    except RENDER_ERRORS as error:
        raise ConversationError(str(error)) from error


def _decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Parquet has texts as bytes, too."""
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}
