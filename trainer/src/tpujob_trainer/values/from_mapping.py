"""Parses dataclasses from mappings that a user wrote.

- A field's type says what is allowed: bool, int, float, str, `int | str`, Literal, another dataclass, `tuple[X, ...]`,
  `Mapping[str, Any]`, `X | None`, and `Annotated[int, Range(...)]` for numbers.
- YAML and JSON keys are camelCase, fields are snake_case.
- An error is one line: the field as it was written, the value, what is allowed, what to do.
- `20e9` arrives as 20000000000.0 from some YAML readers: a number without a fraction counts as an integer.
"""

import dataclasses
import json
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tpujob_contract.spelling import nearest_name, number_meant
from tpujob_contract.storage_address import credentials_problem, credentials_problems, redacted
from tpujob_trainer.values.errors import ConfigurationError

INT_OR_TEXT = int | str
"""An integer of at least 0, or a text that is not empty."""


@dataclasses.dataclass(frozen=True)
class Range:
    """The numbers that a field may hold, both ends included."""

    at_least: float | None = None
    at_most: float | None = None

    def __contains__(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        if self.at_least is not None and self.at_most is not None:
            return f"from {_number(self.at_least)} to {_number(self.at_most)}"
        if self.at_least is not None:
            return f"{_number(self.at_least)} or more"
        return f"at most {_number(self.at_most)}" if self.at_most is not None else "of any size"


def parse[T](kind: type[T], given: Any, path: str) -> T:
    """An instance of the dataclass `kind` with the values in `given`.

    Args:
        kind: a dataclass with keyword-only fields.
        given: the value, decoded from JSON or YAML.
        path: its field, as in `spec.trainer`; errors begin with it.

    Raises:
        ConfigurationError: a key is unknown or missing, or a value has the wrong type or size.
            A ValueError of the dataclass's own checks gets the path in front.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{path}: {_show(given)} is not a block of keys; write its fields below it")
    hints = get_type_hints(kind, include_extras=True)
    fields = {camel_case(field.name): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in given:
        if key not in fields:
            raise ConfigurationError(_unknown(str(key), list(fields), path))
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if given.get(key) is not None:
            values[field.name] = _value(hints[field.name], given[key], f"{path}.{key}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ConfigurationError(f"{path}.{key}: required, and missing")
    try:
        return kind(**values)
    except ConfigurationError:
        raise
    except ValueError as error:
        raise ConfigurationError(f"{path}.{error}") from error


def camel_case(name: str) -> str:
    """The YAML key of a Python field: `sequence_length` becomes `sequenceLength`."""
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def without_none(hint: Any) -> Any:
    """The type without None: `int | None` becomes int."""
    if hint == INT_OR_TEXT:
        return hint
    if get_origin(hint) in (Union, types.UnionType):
        (kept,) = (argument for argument in get_args(hint) if argument is not types.NoneType)
        return kept
    return hint


def split_range(hint: Any) -> tuple[Any, Range]:
    """The bare type and the range of an annotation; an unlimited range if it states none."""
    if get_origin(hint) is Annotated:
        bare, *notes = get_args(hint)
        return bare, next((note for note in notes if isinstance(note, Range)), Range())
    return hint, Range()


def _value(hint: Any, given: Any, path: str) -> Any:
    bare, allowed = split_range(without_none(hint))
    bare = without_none(bare)
    if dataclasses.is_dataclass(bare):
        return parse(bare, given, path)  # type: ignore[arg-type]
    if get_origin(bare) is Literal:
        if given not in get_args(bare):
            raise ConfigurationError(_not_one_of(given, [str(choice) for choice in get_args(bare)], path))
        return given
    if get_origin(bare) is tuple:
        return _items(get_args(bare)[0], given, path)
    if bare is bool:
        if not isinstance(given, bool):
            raise ConfigurationError(f"{path}: {_show(given)} is not true or false")
        return given
    if bare is str:
        if not isinstance(given, str):
            raise ConfigurationError(f"{path}: {_show(given)} is not text; write it in quotes")
        if not given:
            raise ConfigurationError(f"{path}: empty; write a text, or leave the key out")
        if problem := credentials_problem(given):
            raise ConfigurationError(f"{path}: {problem}")
        return given
    if get_origin(bare) is Mapping:
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise ConfigurationError(f"{path}: {_show(given)} is not a block of keys; write its fields below it")
        for sentence in credentials_problems(given, path):
            raise ConfigurationError(sentence)
        return dict(given)
    if bare == INT_OR_TEXT:
        if isinstance(given, str) and given:
            return given
        return _number_of(int, given, Range(at_least=0), path)
    if bare is int or bare is float:
        return _number_of(bare, given, allowed, path)
    raise TypeError(f"{path}: no rule reads {hint}")


def _items(hint: Any, given: Any, path: str) -> tuple[Any, ...]:
    if not isinstance(given, list) or not given:
        raise ConfigurationError(f"{path}: {_show(given)} is not a list; write its items below it, each after a dash")
    return tuple(_value(hint, item, f"{path}[{number}]") for number, item in enumerate(given))


def _number_of(kind: type, given: Any, allowed: Range, path: str) -> int | float:
    word = "a whole number" if kind is int else "a number"
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ConfigurationError(f"{path}: {_show(given)} is not {word} ({allowed}){number_meant(given)}")
    if kind is int and not float(given).is_integer():
        raise ConfigurationError(f"{path}: {_show(given)} is not a whole number ({allowed})")
    if given not in allowed:
        raise ConfigurationError(f"{path}: {_show(given)} is out of range; it must be {allowed}")
    return int(given) if kind is int else float(given)


def _unknown(key: str, known: list[str], path: str) -> str:
    if meant := nearest_name(key, known):
        return f"{path}.{key}: unknown key; did you mean {meant}?"
    return f"{path}.{key}: unknown key; there are {', '.join(known)}"


def _not_one_of(given: Any, choices: list[str], path: str) -> str:
    meant = nearest_name(str(given), choices)
    hint = f"; did you mean {meant}?" if meant else ""
    return f"{path}: {_show(given)} is not one of {', '.join(choices)}{hint}"


def _show(value: Any) -> str:
    text = redacted(json.dumps(value, default=str))
    return text if len(text) <= 80 else text[:77] + "..."


def _number(value: float) -> str:
    return f"{int(value)}" if float(value).is_integer() else f"{value:g}"
