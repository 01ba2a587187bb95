"""Rules and string literals in CEL, the language in which the API server checks a resource.

A rule is evaluated only on values that fit the schema. What a rule iterates over must be capped, or the whole
definition is refused for its cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

type Rule = dict[str, Any]
"""An entry of `x-kubernetes-validations`."""


def rule(
    condition: str, message: str | None = None, *, expression: str | None = None, field: str | None = None
) -> Rule:
    """A rule of the schema.

    Args:
        condition: A CEL expression that is true of what is allowed.
        message: What the refusal says.
        expression: A CEL expression that makes the message instead.
        field: Path of the field that the refusal names, from where the rule stands; that place itself without it.
    """
    parts = {"rule": condition, "message": message, "messageExpression": expression, "fieldPath": field}
    return {key: value for key, value in parts.items() if value is not None}


def text(value: str) -> str:
    """A string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def texts(values: Iterable[str]) -> str:
    """A list of string literals."""
    return f"[{', '.join(map(text, values))}]"
