"""Checks the `trainer` block against the schema that the trainer publishes for its configuration.

The schema is a file of this package, written by `make generate`: the operator knows the trainer's fields without
importing it. Without the file every block passes, and only the trainer itself reports errors.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from tpujob_contract.field_rules import Rule, from_rows
from tpujob_resource.rules.schema_fit import is_valid_fast

FILE = "trainer_schema.json"
FIELD = ("spec", "trainer")


@cache
def trainer_schema() -> Mapping[str, Any] | None:
    """The published schema; None: the package has none."""
    file = resources.files("tpujob_resource.rules").joinpath(FILE)
    if not file.is_file():
        return None
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return schema


PRESETS = "x-tpujob-presets"


def presets() -> Mapping[str, Mapping[str, Any]]:
    """Numbers of each preset model, which the trainer publishes with its schema; empty if it does not."""
    found: Mapping[str, Mapping[str, Any]] = (trainer_schema() or {}).get(PRESETS, {})
    return found


RULES = "x-tpujob-rules"


@cache
def block_rules() -> tuple[Rule, ...]:
    """The trainer's rules between fields of its block; empty if it does not publish them."""
    return from_rows((trainer_schema() or {}).get(RULES, ()))


def trainer_problems(block: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> list[str]:
    """The errors in a block, one line each; empty if there is no schema."""
    schema = trainer_schema() if schema is None else schema
    if schema is None or is_valid_fast(block, schema):
        return []
    from tpujob_resource.rules.schema_errors import schema_errors

    return schema_errors(block, schema, FIELD)
