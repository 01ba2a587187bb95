"""Markdown from schemas, tables and comments."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tpujob.job.fields import schema_fields

HEADER = "<!-- Made by `make generate` from the code; do not edit. -->\n\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell(value) for value in line)} |\n" for line in lines)


def cell(value: object) -> str:
    """A value as a table cell: on one line, with bars escaped."""
    return " ".join(str(value).split()).replace("|", "\\|")


def plain(text: str) -> str:
    """Text from the code with Markdown's characters escaped, except inside backticks."""
    parts = text.split("`")
    return "`".join(part if number % 2 else re.sub(r"([*_<])", r"\\\1", part) for number, part in enumerate(parts))


def fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    """The path, type and description of every field below a schema, in the schema's order."""
    for field in schema_fields(schema, path):
        yield f"`{field.path}`", field.kind, plain(field.meaning) + (" **Required.**" if field.is_required else "")


def commented_values(text: str) -> Iterator[tuple[str, str, str]]:
    """The path, default and comment of every key of a values.yaml with comments above the keys."""
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
            # A key without a comment has its parent's, or that of the key just above.
            words = " ".join(comment) or (parents[-1][2] if parents else "") or above
            path = ".".join([*(name for _, name, _ in parents), key])
            value = value.strip()
            if value:
                yield path, value, plain(words)
            parents.append((indent, key, words))
            above = words if value else ""
            comment = []
