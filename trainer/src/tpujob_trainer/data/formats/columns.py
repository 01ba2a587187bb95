"""Which Arrow types a column of text, of messages or of tokens may have."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tpujob_trainer.data.column import Column
from tpujob_trainer.errors import ConfigurationError


def require_kind(schema: Any, path: str, column: Column) -> None:
    """Checks that an Arrow schema has the columns, once each, and with a type of the kind that they are used as.

    Raises:
        ConfigurationError: it has not; the message names its type, and the columns that would fit.
    """
    for name in column.names:
        if name not in schema.names:
            raise ConfigurationError(
                f"{column.field_of(name)}: {name!r} is not a column of {path!r}; there are {', '.join(schema.names)}"
            )
        if schema.names.count(name) > 1:
            raise ConfigurationError(
                f"{column.field}: {path!r} has {schema.names.count(name)} columns named {name!r}; write it with one"
            )
    if column.kind == "row":
        return
    test = {"text": is_text, "messages": is_messages, "tokens": is_tokens}[column.kind]
    kind = schema.field(column.name).type
    if test(kind):
        return
    fitting = [field.name for field in schema if test(field.type)]
    wanted = {"text": "text", "messages": "messages (a list of role and content)", "tokens": "tokens (a list of ids)"}
    raise ConfigurationError(
        f"{column.field}: {column.name!r} of {path!r} holds {kind}, not {wanted[column.kind]}; "
        f"columns with {column.kind}: {', '.join(fitting) or 'none'}"
    )


def is_text(kind: Any) -> bool:
    """Whether a column of this Arrow type can be read as text."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in (*tests, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def is_messages(kind: Any) -> bool:
    """Whether a row of this Arrow type is a conversation: a list of structs with role and content, or JSON."""
    if is_text(kind):
        return True
    if not _is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    return {"role", "content"} <= {field.name for field in kind.value_type}


def is_tokens(kind: Any) -> bool:
    """Whether a row of this Arrow type is a list of whole numbers."""
    return _is_list(kind) and pa.types.is_integer(kind.value_type)


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
