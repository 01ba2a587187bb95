"""Values of decoded JSON, which anybody may have written, that have the types which a class declares. Pure."""

from __future__ import annotations

import functools
import json
import types
from typing import Any, Dict, Literal, Mapping, Union, get_args, get_origin, get_type_hints

MOST = 10**300
"""Of whole numbers, so that each is a float, too."""
_UNIONS = (Union, getattr(types, "UnionType", Union))


@functools.cache
def _hints(declared: Any) -> Dict[str, Any]:
    return get_type_hints(declared)


def object_in(text: Union[str, bytes]) -> Dict[str, Any]:
    """The object in a JSON text; empty if it is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def typed(values: Mapping[str, Any], declared: type) -> Dict[str, Any]:
    """The values of the fields of a class, such as a TypedDict, without those of another type."""
    kinds = _hints(declared)
    return {name: value for name, value in values.items() if name in kinds and is_of(value, kinds[name])}


def mistyped(value: Any) -> Dict[str, Any]:
    """The fields of a data class that have a value of another type."""
    kinds = _hints(value.__class__)
    return {name: each for name, each in vars(value).items() if not is_of(each, kinds[name])}


def is_of(value: Any, kind: Any) -> bool:
    """Whether a value is of a type in the notation of annotations. A whole number is also a float, and no bool."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any or origin in _UNIONS:
        return kind is Any or any(is_of(value, each) for each in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is dict:
        return isinstance(value, dict) and all(is_of(each, parts[1]) for each in value.values())
    if origin in (list, tuple):
        return isinstance(value, origin) and all(is_of(each, parts[0]) for each in value)
    if isinstance(value, int) and kind in (int, float):
        return not isinstance(value, bool) and abs(value) < MOST
    return isinstance(value, kind)
