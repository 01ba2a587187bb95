"""Converts values of records to Arrow columns; which types a column may have."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats.format import RawRows
from tpujob_trainer.values.errors import ConfigurationError


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


@dataclass(frozen=True)
class Unusable:
    """Stands for a row that cannot be used."""

    cause: str
    """By which it is counted."""


BROKEN: Final = Unusable("malformed")
"""Stands for a row that violates its format."""


def rows_of_values(values: Sequence[Any], column: Column) -> RawRows:
    """Rows from the values of a column in records.

    Args:
        values: None if a record has no value; Unusable if it cannot be read. Texts are str or bytes; conversations are
            lists, or JSON; tokens are lists of whole numbers; rows are objects.
        column: what they should be.
    """
    convert = _CONVERSIONS[column.kind]
    made = [value if value is None or isinstance(value, Unusable) else convert(value) for value in values]
    refused: dict[str, np.ndarray] = {}
    for at, value in enumerate(made):
        if isinstance(value, Unusable):
            refused.setdefault(value.cause, np.zeros(len(made), dtype=bool))[at] = True
            made[at] = None
    kind = pa.large_list(pa.int64()) if column.kind == "tokens" else pa.large_binary()
    return RawRows(pa.array(made, kind), refused)


def value_of_json(text: bytes, column: Column) -> Any:
    """The value of the column in a JSON object; for a text column, `text` itself if it is not UTF-8."""
    try:
        record = json.loads(text)
    except UnicodeDecodeError:
        return text if column.kind == "text" else BROKEN
    except (ValueError, RecursionError):
        return BROKEN
    return value_of_object(record, column)


def value_of_object(record: Any, column: Column) -> Any:
    """The value of the column in a JSON object; BROKEN for anything else."""
    if not isinstance(record, Mapping):
        return BROKEN
    return {name: record.get(name) for name in column.names} if column.kind == "row" else record.get(column.name)


def _text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    return value if isinstance(value, bytes) else BROKEN


def _messages(value: Any) -> Any:
    if isinstance(value, bytes):
        return value
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass") if isinstance(value, list) else BROKEN


def _tokens(value: Any) -> Any:
    if not isinstance(value, list):
        return BROKEN
    fits = all(type(item) is int and -(1 << 63) <= item < 1 << 63 for item in value)
    return value if fits else BROKEN


def _row(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return BROKEN
    try:
        texts = {name: item.decode() if isinstance(item, bytes) else item for name, item in value.items()}
    except UnicodeDecodeError:
        return BROKEN
    return json.dumps(texts, ensure_ascii=False).encode(errors="surrogatepass")


_CONVERSIONS = {"text": _text, "messages": _messages, "tokens": _tokens, "row": _row}
