from typing import Any

import pytest

from tpujob_operator.api.trainer_schema import trainer_problems, trainer_schema

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
        ({"data": "x"}, ['spec.trainer.data: "x" is not a mapping']),
        ({"data": {"path": ""}}, ['spec.trainer.data.path: "" is empty']),
        ({**DATA, "token": 1}, ["spec.trainer.token: there is no such field; did you mean tokens?"]),
        (
            {**DATA, "zzz": 1},
            ["spec.trainer.zzz: there is no such field; known: data, dtype, limit, rate, tokens, units"],
        ),
        ({**DATA, "tokens": "20e9"}, ['spec.trainer.tokens: "20e9" is not a whole number; write 20e9, without quotes']),
        ({**DATA, "tokens": "20B"}, ['spec.trainer.tokens: "20B" is not a whole number; write 20e9']),
        ({**DATA, "tokens": "many"}, ['spec.trainer.tokens: "many" is not a whole number']),
        ({**DATA, "tokens": 0}, ["spec.trainer.tokens: 0 is too small; at least 1"]),
        ({**DATA, "rate": 0}, ["spec.trainer.rate: 0 is too small; more than 0"]),
        ({**DATA, "rate": 2}, ["spec.trainer.rate: 2 is too large; at most 1"]),
        (
            {**DATA, "dtype": "int8"},
            ['spec.trainer.dtype: "int8" is not allowed; one of "float32", "bfloat16"'],
        ),
        ({**DATA, "limit": 0}, ["spec.trainer.limit: 0 is too small; at least 1"]),
        ({**DATA, "limit": "x"}, ['spec.trainer.limit: "x" is not a whole number or nothing']),
        ({**DATA, "units": ["a", 1]}, ["spec.trainer.units[1]: 1 is not a string"]),
    ],
)
def test_a_problem_names_field_value_and_what_is_allowed(block: dict[str, Any], problems: list[str]) -> None:
    assert trainer_problems(block, SCHEMA) == problems


def test_the_published_schema_is_in_the_package() -> None:
    schema = trainer_schema()
    assert schema is not None
    assert {"model", "data", "tokens", "steps"} <= set(schema["properties"])
