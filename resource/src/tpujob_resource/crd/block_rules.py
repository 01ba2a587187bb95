"""The trainer's rules between fields of its block, as CEL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tpujob_contract.block_rules import BlockRule
from tpujob_resource.crd.cel import Rule, rule, texts
from tpujob_resource.rules.trainer_schema import block_rules, trainer_schema

_FLOATS = ("steps", "tokens")
"""For the 20e9 that people write, the API server's CEL has a float where the schema has an integer, and a rule that so
much as asks whether the field is there refuses the resource: the operator alone evaluates rules of these."""


def published_rules() -> list[Rule]:
    """For `spec.trainer`: the rows that the trainer publishes."""
    return [_cel(row) for row in block_rules() if not {*row.given, *row.absent} & {*_FLOATS}]


def _cel(row: BlockRule) -> Rule:
    broken = [_is_given(path) for path in row.given] + [f"!({_is_given(path)})" for path in row.absent]
    if row.tasks:
        task = "(has(self.task) ? self.task : 'pretrain')"
        broken.insert(0, f"{task} in {texts(row.tasks)}")
    # A path below a block that may be missing is no place that the API server can name.
    field = row.field if "." not in row.field else row.field.partition(".")[0]
    message = row.message if field == row.field else f"{row.field.partition('.')[2]}: {row.message}"
    return rule(f"!({' && '.join(broken)})", message, field=f".{field}")


def _is_given(path: str) -> str:
    keys, schema = path.split("."), trainer_schema() or {}
    parts = []
    for i, key in enumerate(keys):
        schema = schema["properties"][key]
        parts.append(f"has(self.{'.'.join(_escaped(keys[: i + 1]))})")
    return " && ".join([*parts, *_asks(schema, f"self.{'.'.join(_escaped(keys))}")])


def _asks(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """What makes a value that is there one that asks for something."""
    if schema.get("type") == "boolean":
        yield path
    elif schema.get("type") in ("integer", "number"):
        yield f"double({path}) != 0.0"


def _escaped(keys: list[str]) -> list[str]:
    """Names that CEL reserves are spelt otherwise (kubernetes.io, "Validation expression")."""
    return [f"__{key}__" if key in ("loop", "if", "in", "as", "for", "import", "package") else key for key in keys]
