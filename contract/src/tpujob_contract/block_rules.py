"""Rules between the fields of the `trainer` block, as rows that every reader of the block evaluates.

The trainer declares the rows and publishes them with its schema. The operator and the command line evaluate the
published rows, and the API server evaluates CEL that is made of them: none accepts what the pod then refuses.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Iterator, Mapping, Tuple

TASK = "pretrain"
"""The task of a block that names none."""


@dataclasses.dataclass(frozen=True)
class BlockRule:
    """A combination of fields that is refused. Fields are paths below the block, such as `model.from`."""

    field: str
    """The field at fault."""
    message: str
    """The rest of the sentence: what is wrong, and what to do."""
    given: Tuple[str, ...] = ()
    """All of these are given,"""
    absent: Tuple[str, ...] = ()
    """none of these is,"""
    tasks: Tuple[str, ...] = ()
    """and the task is one of these; any task if empty."""


def broken_rules(block: Mapping[str, Any], rules: Iterable[BlockRule]) -> Iterator[str]:
    """A sentence for each rule that a block breaks, which begins with the path of the field below the block."""
    task = block.get("task", TASK)
    for rule in rules:
        if (
            (not rule.tasks or task in rule.tasks)
            and all(is_given(block, path) for path in rule.given)
            and not any(is_given(block, path) for path in rule.absent)
        ):
            yield f"{rule.field}: {rule.message}"


def is_given(block: Mapping[str, Any], path: str) -> bool:
    """Whether a field asks for something: it is there, and neither null, false nor 0."""
    value: Any = block
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return False
        value = value.get(key)
    return value is not None and not (isinstance(value, (bool, int, float)) and not value)


def as_rows(rules: Iterable[BlockRule]) -> list[dict[str, Any]]:
    """The rules as JSON."""
    return [
        {key: list(value) if isinstance(value, tuple) else value for key, value in vars(rule).items() if value}
        for rule in rules
    ]


def from_rows(rows: Iterable[Mapping[str, Any]]) -> Tuple[BlockRule, ...]:
    """The rules of published rows."""
    paths = ("given", "absent", "tasks")
    return tuple(
        BlockRule(row["field"], row["message"], **{key: tuple(row.get(key, ())) for key in paths}) for row in rows
    )
