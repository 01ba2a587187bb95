"""Error messages for the errors that jsonschema finds in a value, with the path of the field as the user wrote it.

Its import takes a fifth of the time of a short command, so this is used only for values that `schema_fit` rejects.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match

from tpujob_contract.spelling import nearest_name, number_meant
from tpujob_resource.messages.error_messages import field_path, quoted, unknown_field


def schema_errors(value: Mapping[str, Any], schema: Mapping[str, Any], field: tuple[str, ...]) -> list[str]:
    """The errors in a value, one line each; empty if it is valid.

    Args:
        value: Decoded JSON or YAML.
        schema: JSON Schema, draft 2020-12.
        field: The path of the value in the resource.
    """
    validator = Draft202012Validator(schema)
    errors = sorted(validator.iter_errors(dict(value)), key=lambda e: [str(p) for p in e.absolute_path])
    return list(dict.fromkeys(line for error in errors for line in _lines(error, field)))


def _lines(error: ValidationError, field: tuple[str, ...]) -> Iterator[str]:
    path = field_path((*field, *error.absolute_path))
    value: Any = error.validator_value
    rule: Any = error.validator
    given: Any = error.instance
    if rule == "additionalProperties":
        properties = cast("Mapping[str, Any]", error.schema).get("properties", {})
        known = sorted(properties)
        below = [f"{block}.{key}" for block in known for key in properties[block].get("properties", ())]
        for key in given:
            if key not in known:
                yield unknown_field(path, str(key), known, below)
    elif rule == "required":
        for key in value:
            if key not in given:
                yield f"{path}.{key}: is missing"
    elif rule in ("anyOf", "oneOf") and error.context:
        inner = best_match(_relevant(error))
        if inner is not None and (inner.absolute_path != error.absolute_path or inner.validator != "type"):
            yield from _lines(inner, field)
        else:
            yield f"{path}: {quoted(given)} {_message(error)}"
    else:
        meant = number_meant(given) if rule == "type" and value in ("integer", "number") else ""
        if rule == "type" and value == "object" and error.absolute_path:
            required = cast("Mapping[str, Any]", error.schema).get("required", ())
            meant = _block_meant(str(error.absolute_path[-1]), given, has_defaults=not required)
        yield f"{path}: {quoted(given)} {_message(error)}{meant}"


def _relevant(error: ValidationError) -> list[ValidationError]:
    """The errors of the alternatives that match the value's type; those of all alternatives if none does."""
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
            return f"is not allowed; {_meant(error.instance, value)}one of {', '.join(quoted(v) for v in value)}"
        case "const":
            return f"is not allowed; only {quoted(value)}"
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


_KEYS = {"data": "path", "optimizer": "name", "sample": "prompt", "wandb": "project"}
"""By block: the field that is meant if there is a string instead of the block."""


def _block_meant(block: str, given: Any, *, has_defaults: bool) -> str:
    """The end of a message: the block to write instead of a value that is not a block; empty if that is not known."""
    if given is True and has_defaults:
        return "; write {} for its defaults"
    if given is False:
        return "; leave it out"
    if isinstance(given, list) and block == "trackers":
        return f"; write {{{', '.join(f'{each}: {{}}' for each in given)}}}"
    if not isinstance(given, str):
        return ""
    if block in _KEYS:
        return f"; write {{{_KEYS[block]}: {json.dumps(given) if given != given.strip() else given}}}"
    if block != "model":
        return ""
    if given.startswith(("/", ".")) or "://" in given:
        return f"; write {{from: {given}}}"
    return f"; write {{from: hf://{given}}}" if "/" in given else f"; write {{preset: {given}}}"


def _meant(given: Any, allowed: list[Any]) -> str:
    """The allowed word closest to the given one, as a question; empty if none is close."""
    near = nearest_name(given, (v for v in allowed if isinstance(v, str))) if isinstance(given, str) else None
    return "" if near is None else f"did you mean {quoted(near)}? "


_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "integer": "a whole number",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "null": "nothing",
}
