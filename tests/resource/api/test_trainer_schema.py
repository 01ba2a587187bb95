from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from tpujob_resource.rules.schema_fit import is_valid_fast
from tpujob_resource.rules.trainer_rules import trainer_problems, trainer_schema

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["data"],
    "properties": {
        "data": {
            "type": "object",
            "additionalProperties": False,
            "required": ["path"],
            "properties": {"path": {"type": "string", "minLength": 1}},
        },
        "tokens": {"type": "integer", "minimum": 1},
        "rate": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "dtype": {"enum": ["float32", "bfloat16"]},
        "limit": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        "parts": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        "units": {"type": "array", "items": {"type": "string"}},
    },
}
DATA = {"data": {"path": "x"}}


@pytest.mark.parametrize(
    ("block", "problems"),
    [
        (DATA, []),
        ({**DATA, "tokens": 20e9}, []),
        ({**DATA, "limit": None}, []),
        ({}, ["spec.trainer.data: is missing"]),
        ({"data": {}}, ["spec.trainer.data.path: is missing"]),
        ({"data": "x"}, ['spec.trainer.data: "x" is not a mapping; write {path: x}']),
        ({"data": {"path": ""}}, ['spec.trainer.data.path: "" is empty']),
        ({**DATA, "token": 1}, ["spec.trainer.token: there is no such field; did you mean tokens?"]),
        (
            {**DATA, "zzz": 1},
            ["spec.trainer.zzz: there is no such field; known: data, dtype, limit, parts, rate, tokens, units"],
        ),
        ({**DATA, "tokens": "20e9"}, ['spec.trainer.tokens: "20e9" is not a whole number; write 20e9, without quotes']),
        ({**DATA, "tokens": "20B"}, ['spec.trainer.tokens: "20B" is not a whole number; write 20e9']),
        ({**DATA, "tokens": "many"}, ['spec.trainer.tokens: "many" is not a whole number; write it in digits']),
        ({**DATA, "tokens": 0}, ["spec.trainer.tokens: 0 is too small; at least 1"]),
        ({**DATA, "rate": 0}, ["spec.trainer.rate: 0 is too small; more than 0"]),
        ({**DATA, "rate": 2}, ["spec.trainer.rate: 2 is too large; at most 1"]),
        (
            {**DATA, "dtype": "int8"},
            ['spec.trainer.dtype: "int8" is not allowed; one of "float32", "bfloat16"'],
        ),
        (
            {**DATA, "dtype": "float-23"},
            ['spec.trainer.dtype: "float-23" is not allowed; did you mean "float32"? one of "float32", "bfloat16"'],
        ),
        ({**DATA, "limit": 0}, ["spec.trainer.limit: 0 is too small; at least 1"]),
        ({**DATA, "limit": "x"}, ['spec.trainer.limit: "x" is not a whole number or nothing']),
        ({**DATA, "parts": [1, "a"]}, ['spec.trainer.parts[1]: "a" is not a whole number; write it in digits']),
        ({**DATA, "units": ["a", 1]}, ["spec.trainer.units[1]: 1 is not a string"]),
    ],
)
def test_a_problem_names_field_value_and_what_is_allowed(block: dict[str, Any], problems: list[str]) -> None:
    assert trainer_problems(block, SCHEMA) == problems


def test_the_published_schema_is_in_the_package() -> None:
    schema = trainer_schema()
    assert schema is not None
    assert {"model", "data", "tokens", "steps"} <= set(schema["properties"])


def test_the_published_schema_is_one() -> None:
    Draft202012Validator.check_schema(trainer_schema() or {})


EXAMPLES = Path(__file__).parents[3] / "examples"
ODD: tuple[Any, ...] = (None, True, 0, -1, 1, 2.0, 2.5, 1e300, "", "x", "12", [], ["x"], [1], {}, {"x": 1})


def blocks() -> list[dict[str, Any]]:
    files = (YAML(typ="safe", pure=True).load(file.read_text()) for file in sorted(EXAMPLES.rglob("*.yaml")))
    return [job["spec"]["trainer"] for job in files if "trainer" in job["spec"]]


def changed(value: Any) -> Iterator[Any]:
    """A value with each of its parts replaced by something odd, left out, or joined by something unknown."""
    yield from ODD
    if isinstance(value, dict):
        yield {**value, "unknown": 1}
        for key in value:
            yield {other: each for other, each in value.items() if other != key}
            yield from ({**value, key: part} for part in changed(value[key]))
    if isinstance(value, list):
        yield [*value, {}]
        yield from ([part, *value[1:]] for part in changed(value[0]))


def test_a_right_block_needs_no_jsonschema() -> None:
    schema = trainer_schema() or {}
    assert len(blocks()) > 8
    assert all(is_valid_fast(block, schema) for block in blocks())


def test_the_quick_yes_is_that_of_jsonschema() -> None:
    schema = trainer_schema() or {}
    validator = Draft202012Validator(schema)
    longest = max(blocks(), key=lambda block: len(str(block)))
    every_field = {**longest, **{key: each for block in blocks() for key, each in block.items()}}
    found = {"yes": 0, "no": 0}
    for value in changed(every_field):
        is_valid = validator.is_valid(value)
        assert is_valid_fast(value, schema) == is_valid, value
        found["yes" if is_valid else "no"] += 1
    assert min(found.values()) > 20


@pytest.mark.parametrize(
    ("value", "schema"),
    [(True, {"enum": [1]}), (1, {"type": "boolean"}), (2, {"multipleOf": 2}), ("x", {"pattern": "x"})],
    ids=["true is not 1", "1 is not true", "a keyword that is not known", "another one"],
)
def test_what_is_not_known_is_left_to_jsonschema(value: Any, schema: dict[str, Any]) -> None:
    assert not is_valid_fast(value, schema)
