"""Rows of rules between fields, as every reader evaluates them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tpujob_contract.field_rules import (
    Condition,
    Rule,
    absent,
    as_rows,
    at_least,
    broken,
    broken_rules,
    differs,
    from_rows,
    given,
    indivisible,
    is_given,
    larger_amount,
    less,
    longer,
    matches,
    none_of,
    of_tasks,
    on_volume,
    one_of,
    several,
    there,
)

VOLUMES = [
    {"name": "claim", "mountPath": "/a", "persistentVolumeClaim": "c"},
    {"name": "scratch", "mountPath": "/a/scratch", "emptyDir": {}},
    {"name": "bucket", "mountPath": "/b/", "gcs": {"bucket": "bbb"}, "readOnly": True},
]


@pytest.mark.parametrize(
    ("conditions", "document", "holds"),
    [
        (given("a", "b.c"), {"a": 1, "b": {"c": "x"}}, True),
        (given("a", "b.c"), {"a": 1, "b": {}}, False),
        (given("a"), {"a": 0}, False),
        (given("a"), {"a": False}, False),
        (given("a"), {"a": None}, False),
        (given("a"), {"a": {}}, True),
        (there("a"), {"a": 0}, True),
        (there("a"), {"a": None}, False),
        (absent("a", "b.c"), {"b": "no block"}, True),
        (absent("a"), {"a": 0.5}, False),
        (one_of("a", ("x", "y")), {"a": "y"}, True),
        (one_of("a", ("x",)), {"a": ["x"]}, False),
        (one_of("a", ("x",)), {}, False),
        (one_of("a", ("x",), "x"), {}, True),
        (one_of("a", (1,)), {"a": True}, False),
        (none_of("a", ("x",)), {"a": "y"}, True),
        (none_of("a", ("x",)), {"a": "x"}, False),
        (none_of("a", ("x",)), {}, False),
        (none_of("a", ("x",), "y"), {}, True),
        (of_tasks("pretrain"), {}, True),
        (of_tasks("extract"), {"task": "score"}, False),
        (matches("a", "^b$"), {"a": "b"}, True),
        (matches("a", "^b$"), {"a": "b\n"}, False),
        (matches("a", "^b$"), {"a": 5}, False),
        (differs("a", "^b$"), {"a": "c"}, True),
        (differs("a", "^b$"), {"a": 5}, False),
        (differs("a", "^b$"), {}, False),
        (longer("a", 3), {"a": "abcd"}, True),
        (longer("a", 3), {"a": "abc"}, False),
        (at_least("a", 2), {"a": 2}, True),
        (at_least("a", 2), {"a": 1}, False),
        (at_least("a", 2), {"a": True}, False),
        (at_least("a", "b"), {"a": 2, "b": 2}, True),
        (at_least("a", "b"), {"a": 2}, False),
        (at_least("a", "b", 5, 5), {}, True),
        (less("a", "b"), {"a": 1, "b": 2}, True),
        (less("a", 2, 1), {}, True),
        (less("a", 2), {}, False),
        (larger_amount("a", "b"), {"a": "2Gi", "b": "1500Mi"}, True),
        (larger_amount("a", "b"), {"a": 2, "b": "2000m"}, False),
        (larger_amount("a", "b"), {"a": 2}, False),
        (indivisible("a", "b"), {"a": 5, "b": 2}, True),
        (indivisible("a", "b"), {"a": 4, "b": 2}, False),
        (indivisible("a", "b"), {"a": 4, "b": 0}, False),
        (indivisible("a", 2), {"a": 5}, True),
        (several("a", "b", "c"), {"a": 1, "c": 1}, True),
        (several("a", "b", "c"), {"a": 1, "c": False}, False),
        (given('a."x.y/z"'), {"a": {"x.y/z": "1"}}, True),
        (on_volume("a", "none"), {"a": "/c"}, True),
        (on_volume("a", "none"), {"a": "/ab"}, True),
        (on_volume("a", "none"), {"a": "gs://bucket/c"}, False),
        (on_volume("a", "none"), {"a": "/a"}, False),
        (on_volume("a", "none"), {"a": "file:///c/d"}, True),
        (on_volume("a", "none"), {"a": "file:///a/d"}, False),
        (on_volume("a", "lost"), {"a": "/a/scratch/x"}, True),
        (on_volume("a", "lost"), {"a": "/a/x"}, False),
        (on_volume("a", "readOnly"), {"a": "/b/x"}, True),
        (on_volume("a", "readOnly"), {"a": "/a/x"}, False),
    ],
    ids=str,
)
def test_condition_holds(conditions: tuple[Condition, ...], document: dict[str, Any], holds: bool) -> None:
    document = {**document, "spec": {"volumes": VOLUMES}}
    found = list(broken(document, [Rule("a", "is wrong", conditions)]))
    assert [each.path for each in found] == ([("a",)] if holds else [])


@pytest.mark.parametrize(
    ("at", "field", "condition", "document", "paths"),
    [
        ("a[]", "b", given("b"), {"a": [{}, {"b": 1}, {"b": 2}]}, ["a[1].b", "a[2].b"]),
        ("a[]", "b", given("/c"), {"a": [{}], "c": 1}, ["a[0].b"]),
        ("a[]", "b", given("/c"), {"a": [{}]}, []),
        ("a[].b", "", absent("c"), {"a": [{"b": {}}, {}]}, ["a[0].b"]),
        ("a{}", "", matches("", "^x"), {"a": {"xy": 1, "y": 1}}, ["a.xy"]),
        ("a[]", "", given("b"), {"a": "no list"}, []),
    ],
    ids=str,
)
def test_rule_stands_at_each_item(
    at: str, field: str, condition: tuple[Condition, ...], document: dict[str, Any], paths: list[str]
) -> None:
    sentences = list(broken_rules(document, [Rule(field, "is wrong", condition, at)]))
    assert sentences == [f"{path}: is wrong" for path in paths]


def test_rows_are_published_as_json() -> None:
    rules = (
        Rule("a", "excludes b", given("a", "b.c"), "d[]", shows=True),
        Rule("a", "is missing", (*absent("a"), *of_tasks("extract"))),
        Rule("", "is not less", at_least("a", "b", 300, 600)),
        Rule("", "is not one", none_of("a", (1, 2))),
    )
    assert from_rows(json.loads(json.dumps(as_rows(rules)))) == rules


def test_empty_block_is_given() -> None:
    assert is_given({})
