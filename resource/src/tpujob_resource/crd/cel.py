"""Rules and string literals in CEL, the language with which the API server validates a resource.

A rule is evaluated only on values that match the schema. Lists and maps that a rule iterates over must have a limit, or
the API server refuses the whole definition for its cost.
"""

from collections.abc import Iterable
from typing import Any

type Rule = dict[str, Any]
"""An entry of `x-kubernetes-validations`."""


def rule(
    condition: str, message: str | None = None, *, expression: str | None = None, field: str | None = None
) -> Rule:
    """A validation rule of the schema.

    Args:
        condition: A CEL expression that is true for allowed values.
        message: The message of a refusal.
        expression: A CEL expression for the message, as an alternative.
        field: Path of the field that the refusal names, relative to the rule's place; None: the place itself.
    """
    parts = {"rule": condition, "message": message, "messageExpression": expression, "fieldPath": field}
    return {key: value for key, value in parts.items() if value is not None}


def text(value: str) -> str:
    """A CEL string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def texts(values: Iterable[str]) -> str:
    """A CEL list of string literals."""
    return f"[{', '.join(map(text, values))}]"
