"""The `trainer` block against the schema that the trainer publishes of its own configuration.

The schema is a file of this package, made by `make generate`: the operator knows the trainer's words without
importing it. Without the file every block passes, and the trainer itself is the first to object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from tpujob_operator.api.error_messages import field_path, number_meant, shown, unknown_field

FILE = "trainer_schema.json"
FIELD = ("spec", "trainer")


@cache
def trainer_schema() -> Mapping[str, Any] | None:
    """The published schema, or None when the package has none."""
    file = resources.files("tpujob_operator").joinpath("data", FILE)
    if not file.is_file():
        return None
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return schema


PRESETS = "x-tpujob-presets"


def presets() -> Mapping[str, Mapping[str, Any]]:
    """Numbers of each preset model, as the trainer publishes them beside its schema; empty when it does not."""
    found: Mapping[str, Mapping[str, Any]] = (trainer_schema() or {}).get(PRESETS, {})
    return found


def trainer_problems(block: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> list[str]:
    """What is wrong with a block, one line each; nothing when there is no schema to compare with."""
    schema = trainer_schema() if schema is None else schema
    if schema is None:
        return []
    validator = Draft202012Validator(schema)
    errors = sorted(validator.iter_errors(dict(block)), key=lambda e: [str(p) for p in e.absolute_path])
    return list(dict.fromkeys(line for error in errors for line in _lines(error)))


def _lines(error: ValidationError) -> Iterator[str]:
    parts = (*FIELD, *error.absolute_path)
    path = field_path(parts)
    value: Any = error.validator_value
    rule: Any = error.validator
    given: Any = error.instance
    if rule == "additionalProperties":
        known = sorted(cast("Mapping[str, Any]", error.schema).get("properties", {}))
        for key in given:
            if key not in known:
                yield unknown_field(path, str(key), known)
    elif rule == "required":
        for key in value:
            if key not in given:
                yield f"{path}.{key}: is missing"
    elif rule in ("anyOf", "oneOf") and error.context:
        inner = best_match(_relevant(error))
        if inner is not None and (inner.absolute_path != error.absolute_path or inner.validator != "type"):
            yield from _lines(inner)
        else:
            yield f"{path}: {shown(given)} {_message(error)}"
    else:
        meant = number_meant(given) if rule == "type" and value in ("integer", "number") else ""
        yield f"{path}: {shown(given)} {_message(error)}{meant}"


def _relevant(error: ValidationError) -> list[ValidationError]:
    """Of the alternatives, what is wrong with those that fit the value's type; null says nothing of use."""
    context = list(error.context or ())
    fitting = [e for e in context if e.validator != "type" or len(e.absolute_path) > len(error.absolute_path)]
    return fitting or context


def _message(error: ValidationError) -> str:
    value: Any = error.validator_value
    match error.validator:
        case "type":
            return f"is not {' or '.join(_TYPES.get(t, t) for t in ([value] if isinstance(value, str) else value))}"
        case "anyOf" | "oneOf":
            kinds = [_TYPES.get(option["type"], option["type"]) for option in value if "type" in option]
            return f"is not {' or '.join(kinds)}" if kinds else f"fits none of the {len(value)} allowed forms"
        case "enum":
            return f"is not allowed; one of {', '.join(shown(v) for v in value)}"
        case "const":
            return f"is not allowed; only {shown(value)}"
        case "minimum":
            return f"is too small; at least {value}"
        case "exclusiveMinimum":
            return f"is too small; more than {value}"
        case "maximum":
            return f"is too large; at most {value}"
        case "exclusiveMaximum":
            return f"is too large; less than {value}"
        case "minLength":
            return "is empty"
        case "pattern":
            return f"does not match {value}"
        case _:
            return f"is wrong: {error.message}"


_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "integer": "a whole number",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "null": "nothing",
}
