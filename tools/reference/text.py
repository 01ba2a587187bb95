"""Markdown from schemas, tables and comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HEADER = "<!-- Made by `make generate` from the code; do not edit. -->\n\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell(value) for value in line)} |\n" for line in lines)


def cell(value: object) -> str:
    """A value as it may stand in a table."""
    return " ".join(str(value).split()).replace("|", "\\|")


def plain(text: str) -> str:
    """A sentence of the code whose stars and underscores mean themselves, but for what is code already."""
    parts = text.split("`")
    return "`".join(part if number % 2 else re.sub(r"([*_<])", r"\\\1", part) for number, part in enumerate(parts))


def fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    """Path, type and description of every field below a schema, in the order in which they are written."""
    for key, inner in (schema.get("properties") or {}).items():
        name = f"{path}.{key}"
        is_required = key in (schema.get("required") or ())
        yield (
            f"`{name}`",
            kind(inner),
            plain(inner.get("description") or "") + (" **Required.**" if is_required else ""),
        )
        item = inner.get("items")
        if isinstance(item, Mapping):
            yield from fields(item, f"{name}[]")
        yield from fields(inner, name)


def kind(schema: Mapping[str, Any]) -> str:
    """The type of a field with what is allowed, in a few words."""
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"] if value is not None)
    if schema.get("x-kubernetes-int-or-string"):
        return "amount"
    word = {"array": "list", "object": "mapping", "integer": "whole number"}.get(
        schema.get("type", ""), schema.get("type", "any")
    )
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{word}, {number(low)} to {number(high)}"
    if low is not None:
        return f"{word}, {number(low)} or more"
    if schema.get("maxLength") and word == "string":
        return f"string, at most {schema['maxLength']} characters"
    return str(word)


def number(value: float) -> str:
    """A number without a needless fraction."""
    return str(int(value)) if float(value).is_integer() else json.dumps(value)


def commented_values(text: str) -> Iterator[tuple[str, str, str]]:
    """Path, default and comment of every key of a values.yaml whose comments stand above the keys."""
    parents: list[tuple[int, str, str]] = []
    comment: list[str] = []
    above = ""
    for line in text.splitlines():
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if not stripped:
            comment, above = [], ""
        elif stripped.startswith("#"):
            comment.append(stripped.lstrip("# "))
        elif ":" in stripped and not stripped.startswith("-"):
            key, _, value = stripped.partition(":")
            while parents and parents[-1][0] >= indent:
                parents.pop()
            # Two keys may share a comment: then it is the parent's, or that of the key just above.
            words = " ".join(comment) or (parents[-1][2] if parents else "") or above
            path = ".".join([*(name for _, name, _ in parents), key])
            value = value.strip()
            if value:
                yield path, value, plain(words)
            parents.append((indent, key, words))
            above = words if value else ""
            comment = []
