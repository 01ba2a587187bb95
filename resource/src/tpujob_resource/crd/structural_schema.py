"""Converts a JSON Schema to the structural schema that Kubernetes accepts.

Differences: no references and definitions, no null (a field is absent instead), no titles, no defaults (they are in the
code), no `additionalProperties: false` (Kubernetes prunes unknown fields, and kubectl refuses them), and a limit on
every string, list and map, without which the cost of the CEL rules cannot be bounded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

type Schema = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
MAX_LENGTH = 8192
MAX_ITEMS = 1024

_KEPT = (
    "type",
    "format",
    "description",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "required",
)


def structural(schema: Mapping[str, Any]) -> Schema:
    """A structural schema that accepts what this JSON Schema accepts, except null.

    Args:
        schema: JSON Schema, with definitions under `$defs`.
    """
    return _convert(schema, schema.get("$defs", {}))


def _convert(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    schema = _resolved(schema, definitions)
    if schema.get(INT_OR_STRING):
        return {k: schema[k] for k in ("description", INT_OR_STRING, "pattern", "maxLength") if k in schema}
    result: Schema = {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    match result.get("type"):
        case "object":
            _convert_object(schema, result, definitions)
        case "array":
            result["items"] = _convert(schema["items"], definitions)
            result.setdefault("maxItems", MAX_ITEMS)
        case "string" if "enum" not in result and "format" not in result:
            result.setdefault("maxLength", MAX_LENGTH)
        case "integer":
            result["format"] = "int64"
        case None:
            # The schema allows any type.
            result[PRESERVE] = True
    return result


def _convert_object(schema: Mapping[str, Any], result: Schema, definitions: Mapping[str, Any]) -> None:
    properties = schema.get("properties")
    if properties is not None:
        result["properties"] = {name: _convert(inner, definitions) for name, inner in properties.items()}
    elif isinstance(values := _values(schema), Mapping):
        result["additionalProperties"] = _convert(values, definitions)
    else:
        result[PRESERVE] = True


def _values(schema: Mapping[str, Any]) -> Any:
    """The schema of a map's values. A structural schema cannot express patterns of keys."""
    patterns = list(schema.get("patternProperties", {}).values())
    return patterns[0] if len(patterns) == 1 else schema.get("additionalProperties")


def _asks_for_keys(options: Sequence[Mapping[str, Any]]) -> bool:
    """Whether alternatives only differ in required keys; these are left to the operator, whose message is better."""
    return bool(options) and all(option.keys() == {"required"} for option in options)


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with references and alternatives to null resolved; keys beside them take precedence."""
    resolved = dict(schema)
    while True:
        if "$ref" in resolved:
            name = resolved.pop("$ref").rsplit("/", 1)[-1]
            resolved = {**definitions[name], **resolved}
        elif "anyOf" in resolved and not resolved.get(INT_OR_STRING) and not _asks_for_keys(resolved["anyOf"]):
            options = [option for option in resolved.pop("anyOf") if option.get("type") != "null"]
            if len(options) != 1:
                kinds = ", ".join(str(option.get("type")) for option in options)
                raise ValueError(f"no structural schema has the alternatives {kinds}")
            resolved = {**options[0], **resolved}
        else:
            return resolved
