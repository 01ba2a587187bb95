"""Records: tf.train.Example messages, as TFDS and most TFRecord and array record files hold, or objects in JSON.

The message is `Example{1: Features{1: map<string, Feature>}}`, and a feature one of `{1: BytesList}`, `{2: FloatList}`,
`{3: Int64List}`, each `{1: repeated}` (tensorflow/core/example/feature.proto). An Example begins with the byte 0x0a or
is empty, JSON with a brace: they cannot be mistaken for one another.
"""

from collections.abc import Iterator
from typing import Any

from tpujob_trainer.data.column import Column
from tpujob_trainer.data.formats.values import BROKEN, value_of_json

_WORD = (1 << 64) - 1


def value_of_record(record: bytes, column: Column) -> Any:
    """The value of the column in a record: bytes, a list of numbers, a JSON value, None or BROKEN."""
    if record[:1] == b"{":
        return value_of_json(record, column)
    try:
        if column.kind == "row":
            return {name: _named(record, name) for name in column.names}
        return _named(record, column.name)
    except (IndexError, ValueError):
        return BROKEN


def _named(record: bytes, name: str) -> Any:
    feature = _feature(record, name.encode())
    return None if feature is None else _value(feature)


def _feature(record: bytes, name: bytes) -> bytes | None:
    found = None
    for number, features in fields(record):
        if number != 1 or not isinstance(features, bytes):
            continue
        for entry_number, entry in fields(features):
            if entry_number == 1 and isinstance(entry, bytes):
                pair = dict(fields(entry))
                if pair.get(1) == name:
                    found = pair.get(2, b"")
    return found if isinstance(found, bytes) else None


def _value(feature: bytes) -> Any:
    for kind, values in fields(feature):
        if not isinstance(values, bytes):
            continue
        if kind == 1:
            return next((value for number, value in fields(values) if number == 1), None)
        if kind == 3:
            return [_signed(word) for word in _int64s(values)]
        return BROKEN
    return None


def _int64s(values: bytes) -> Iterator[int]:
    for number, value in fields(values):
        if number == 1 and isinstance(value, bytes):  # packed
            at = 0
            while at < len(value):
                word, at = varint(value, at)
                yield word
        elif number == 1 and isinstance(value, int):
            yield value


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a protocol buffer in their order: field number, and bytes or a number as the value.

    Raises:
        ValueError: it is not a protocol buffer.
        IndexError: it is cut off.
    """
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        match tag & 7:
            case 0:
                value, at = varint(message, at)
                yield tag >> 3, value
            case 1 | 5 as kind:
                width = 8 if kind == 1 else 4
                yield tag >> 3, int.from_bytes(message[at : at + width], "little")
                at += width
            case 2:
                length, at = varint(message, at)
                if at + length > len(message):
                    raise IndexError("a field is cut off")
                yield tag >> 3, message[at : at + length]
                at += length
            case other:
                raise ValueError(f"wire type {other}")


def varint(message: bytes, at: int) -> tuple[int, int]:
    """The varint at an index, and the index after it.

    Raises:
        IndexError: it is cut off.
    """
    byte = message[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = message[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _WORD, at + 1
        shift += 7
