"""Writes rows with any columns as texts or conversations: by `data.template`, `data.messages` or `data.custom`."""

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tpujob_trainer.data.column import Column
from tpujob_trainer.data.template import RENDER_ERRORS, Rendered, Template, without_nothing
from tpujob_trainer.data.text.chat import ChatTemplate
from tpujob_trainer.data.text.columns import LEFT_OUT, ConversationError, Render
from tpujob_trainer.values.errors import ConfigurationError, brief
from tpujob_trainer.values.references import load_reference


def row_renderer(column: Column, special: Mapping[str, str], chat: ChatTemplate | None) -> Render:
    """The function that makes a text from a row, and states which part of it is learned.

    A column that is null is undefined: a template that writes it refuses the row, unless it tests for it (`{% if answer
    is defined %}`, `default`).

    Args:
        column: with the templates, or the function.
        special: the texts of bos_token, eos_token and the like.
        chat: writes conversations; needed for `messages`.
    """
    if column.custom is not None:
        return functools.partial(_by_function, load_reference(column.custom, column.field), column, chat)
    if column.template is not None:
        text = Template(column.template, strict=True)

        def write(row: Mapping[str, Any]) -> Rendered:
            rendered = _call(text, row, special)
            return rendered if column.loss_on == "assistant" else Rendered.whole(rendered.text)

        return write
    assert chat is not None
    if column.conversation is not None:
        return functools.partial(_with_tools, column, column.conversation, chat)
    parts = [(role, Template(content, strict=True)) for role, content in column.messages]

    def converse(row: Mapping[str, Any]) -> Rendered:
        conversation = [{"role": role, "content": _call(part, row, special).text} for role, part in parts]
        return chat.written(conversation, loss_on=column.loss_on, is_prompt=column.is_prompt)

    return converse


def _with_tools(column: Column, names: tuple[str, str], chat: ChatTemplate, row: Mapping[str, Any]) -> Rendered:
    conversation, tools = (_listed(row.get(name), name) for name in names)
    if conversation is None:
        raise ConversationError("no conversation", cause="null")
    return chat.written(conversation, loss_on=column.loss_on, is_prompt=column.is_prompt, tools=tools)


def _listed(value: Any, name: str) -> list[Any] | None:
    """The value as a list, which may be given as JSON; None: there is none."""
    if isinstance(value, bytes | str):
        try:
            value = json.loads(value) if value else None
        except (ValueError, RecursionError):
            raise ConversationError(f"{name} is not JSON") from None
    if value is not None and not isinstance(value, list):
        raise ConversationError(f"{name} is no list")
    return value


def row_encoder(column: Column) -> Callable[[Mapping[str, Any]], list[int]]:
    """The user's function that makes token ids from a row, with a check of what it returns."""
    assert column.custom is not None
    function = load_reference(column.custom, column.field)

    def encode(row: Mapping[str, Any]) -> list[int]:
        ids = np.asarray(made := _called(function, column, row))
        if ids.ndim != 1 or not (np.issubdtype(ids.dtype, np.integer) or not ids.size):
            raise _returned(made, column, row, "a list of token ids (returns is tokens)")
        return [int(number) for number in ids]

    return encode


def _by_function(
    function: Callable[[dict[str, Any]], Any], column: Column, chat: ChatTemplate | None, row: Mapping[str, Any]
) -> Rendered:
    made = _called(function, column, row)
    if column.makes_messages:
        is_right = isinstance(made, list) and all(isinstance(part, dict) and "role" in part for part in made)
        wanted = "a list of messages with role and content (lossOn is set)"
    else:
        is_right, wanted = isinstance(made, str), "a text (for messages set lossOn, for token ids returns)"
    if not is_right:
        raise _returned(made, column, row, wanted)
    if not column.makes_messages:
        return Rendered.whole(made)
    assert chat is not None
    return chat.written(made, loss_on=column.loss_on, is_prompt=column.is_prompt)


def _called(function: Callable[[dict[str, Any]], Any], column: Column, row: Mapping[str, Any]) -> Any:
    """The result of the user's function for a row.

    Raises:
        ConversationError: it leaves the row out.
        ConfigurationError: it raised something.
    """
    try:
        made = function(_decoded(row))
    except Exception as error:
        raise ConfigurationError(
            f"{column.field}: {column.custom} raised {brief(error)} for a row of {_types(row)}"
        ) from error
    if made is None:
        raise ConversationError("left out", cause=LEFT_OUT)
    return made


def _returned(made: Any, column: Column, row: Mapping[str, Any], wanted: str) -> ConfigurationError:
    return ConfigurationError(
        f"{column.field}: {column.custom} returned {type(made).__name__} for a row of {_types(row)}, and not {wanted}, "
        "or None, which leaves it out"
    )


def _types(row: Mapping[str, Any]) -> str:
    """The columns of a row with the types of their values; the values themselves are not for a log."""
    return ", ".join(f"{name} ({type(value).__name__})" for name, value in _decoded(row).items())


def _call(template: Template, row: Mapping[str, Any], special: Mapping[str, str]) -> Rendered:
    try:
        return template(**{**special, **without_nothing(_decoded(row))})
    except RENDER_ERRORS as error:
        raise ConversationError(str(error)) from error


def _decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with bytes as text: parquet may have texts as bytes."""
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}
