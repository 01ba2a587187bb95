"""A fast check of values against a JSON Schema, without importing jsonschema.

It knows only the keywords of the trainer's schema. A value that it rejects may still be valid: jsonschema decides, and
writes the messages. Without this module, each short command with a valid job would take a fifth longer.
"""

from collections.abc import Callable, Mapping
from typing import Any

type Schema = Mapping[str, Any]


def is_valid_fast(value: Any, schema: Schema) -> bool:
    """Whether the value is known to be valid; False also for a schema with keywords that this module does not know."""
    return all(
        key in _NOTES or key.startswith("x-") or (key in _KEYWORDS and _KEYWORDS[key](value, argument, schema))
        for key, argument in schema.items()
    )


_NOTES = frozenset({"description", "default", "title", "format", "$schema"})
"""Keywords that do not restrict values."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: _is_number(value) and (isinstance(value, int) or value.is_integer()),
}


def _type(value: Any, wanted: Any, schema: Schema) -> bool:
    names = wanted if isinstance(wanted, list) else [wanted]
    return any(name in _TYPES and _TYPES[name](value) for name in names)


def _enum(value: Any, allowed: Any, schema: Schema) -> bool:
    return any(type(value) is type(each) and value == each for each in allowed)


def _properties(value: Any, inner: Any, schema: Schema) -> bool:
    return not isinstance(value, dict) or all(is_valid_fast(value[key], inner[key]) for key in value if key in inner)


def _additional(value: Any, allowed: Any, schema: Schema) -> bool:
    if not isinstance(value, dict):
        return True
    others = [each for key, each in value.items() if key not in schema.get("properties", {})]
    if not others or allowed is True:
        return True
    return isinstance(allowed, Mapping) and all(is_valid_fast(each, allowed) for each in others)


def _items(value: Any, inner: Any, schema: Schema) -> bool:
    return not isinstance(value, list) or all(is_valid_fast(each, inner) for each in value)


_KEYWORDS: dict[str, Callable[[Any, Any, Schema], bool]] = {
    "type": _type,
    "enum": _enum,
    "properties": _properties,
    "additionalProperties": _additional,
    "required": lambda value, keys, schema: not isinstance(value, dict) or all(key in value for key in keys),
    "items": _items,
    "anyOf": lambda value, options, schema: any(is_valid_fast(value, option) for option in options),
    "minItems": lambda value, least, schema: not isinstance(value, list) or len(value) >= least,
    "minLength": lambda value, least, schema: not isinstance(value, str) or len(value) >= least,
    "minimum": lambda value, least, schema: not _is_number(value) or value >= least,
    "maximum": lambda value, most, schema: not _is_number(value) or value <= most,
    "exclusiveMinimum": lambda value, bound, schema: not _is_number(value) or value > bound,
    "exclusiveMaximum": lambda value, bound, schema: not _is_number(value) or value < bound,
}
