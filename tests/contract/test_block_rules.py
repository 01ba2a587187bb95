"""Rows of rules between fields, as every reader of a block evaluates them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tpujob_contract.block_rules import BlockRule, as_rows, broken_rules, from_rows, is_given

EXCLUDES = BlockRule("a", "excludes b", given=("a", "b.c"))
REQUIRES = BlockRule("a", "requires b", given=("a",), absent=("b.c",))
OF_A_TASK = BlockRule("a", "is missing", absent=("a",), tasks=("extract",))


@pytest.mark.parametrize(
    ("rule", "block", "is_broken"),
    [
        (EXCLUDES, {"a": 1, "b": {"c": "x"}}, True),
        (EXCLUDES, {"a": 1, "b": {}}, False),
        (EXCLUDES, {"a": 0, "b": {"c": "x"}}, False),
        (EXCLUDES, {"a": False, "b": {"c": "x"}}, False),
        (EXCLUDES, {"a": {}, "b": {"c": "x"}}, True),
        (REQUIRES, {"a": 1}, True),
        (REQUIRES, {"a": 1, "b": {"c": None}}, True),
        (REQUIRES, {"a": 1, "b": "no block"}, True),
        (REQUIRES, {"a": 1, "b": {"c": "x"}}, False),
        (OF_A_TASK, {"task": "extract"}, True),
        (OF_A_TASK, {"task": ["extract"]}, False),
        (OF_A_TASK, {}, False),
    ],
)
def test_rule_is_broken_by_its_combination_alone(rule: BlockRule, block: dict[str, Any], is_broken: bool) -> None:
    assert list(broken_rules(block, [rule])) == ([f"a: {rule.message}"] if is_broken else [])


def test_rows_are_published_as_json() -> None:
    rules = (EXCLUDES, REQUIRES, OF_A_TASK)
    assert from_rows(json.loads(json.dumps(as_rows(rules)))) == rules


def test_empty_block_is_given() -> None:
    assert is_given({"lora": {}}, "lora")
