"""What pydantic found wrong, as sentences: every kind of mistake once, at every kind of place."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tpujob_resource.messages.error_messages import MAX_SHOWN, describe_problems, field_path, quoted, unknown_field
from tpujob_resource.models.fields import Quantity


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(min_length=1, max_length=4, pattern="^[a-z]*$")] = "a"
    even: Annotated[int, Field(multiple_of=2)] = 2


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    inner: Inner | None = None
    parts: list[Inner] = []
    by_key: Annotated[dict[Annotated[str, Field(max_length=3)], str], Field(alias="byKey")] = {}
    count: Annotated[int, Field(ge=1, le=9)] = 1
    rate: float = 1.0
    way: Literal["on", "off"] = "on"
    amount: Quantity = 1
    flag: bool = False
    few: Annotated[list[str], Field(min_length=1, max_length=2)] = ["a"]
    wanted: str


FIELDS = "inner, parts, byKey, count, rate, way, amount, flag, few, wanted"
PROBLEMS = {
    # name: (resource, the line)
    "root": (5, "the manifest: 5 is not a mapping"),
    "missing": ({}, "wanted: is missing"),
    "near a field": ({"inne": 1}, "inne: there is no such field; did you mean inner?"),
    "near no field": ({"zzzzzz": 1}, f"zzzzzz: there is no such field; known: {FIELDS}"),
    "field of a part": ({"inner": {"nam": 1}}, "inner.nam: there is no such field; did you mean name?"),
    "field of a part of a list": (
        {"parts": [{}, {"eve": 1}]},
        "parts[1].eve: there is no such field; did you mean even?",
    ),
    "field of no word": ({"inner": {"a b": 1}}, 'inner["a b"]: there is no such field; known: name, even'),
    "string": ({"inner": {"name": 5}}, "inner.name: 5 is not a string; put it in quotes"),
    "number": ({"count": "many"}, 'count: "many" is not a whole number; write it in digits'),
    "number as people write it": ({"count": "4k"}, 'count: "4k" is not a whole number; write 4e3'),
    "number with a fraction": ({"count": 1.5}, "count: 1.5 is not a whole number"),
    "too small": ({"count": 0}, "count: 0 is too small; at least 1"),
    "too large": ({"count": 10}, "count: 10 is too large; at most 9"),
    "truth": ({"flag": "perhaps"}, 'flag: "perhaps" is neither true nor false'),
    "mapping": ({"inner": 5}, "inner: 5 is not a mapping"),
    "list": ({"parts": {}}, "parts: {} is not a list"),
    "too long": ({"inner": {"name": "abcde"}}, 'inner.name: "abcde" is too long; at most 4 characters'),
    "too short": ({"inner": {"name": ""}}, 'inner.name: "" is empty'),
    "pattern": (
        {"inner": {"name": "A"}},
        'inner.name: "A" has characters that are not allowed here; pattern ^[a-z]*$',
    ),
    "one of two": ({"way": "up"}, "way: \"up\" is not allowed; one of 'on' or 'off'"),
    "too few": ({"few": []}, "few: [] is empty; at least 1 entry"),
    "too many": ({"few": ["a", "b", "c"]}, 'few: ["a", "b", "c"] has 3 entries; at most 2'),
    "key": ({"byKey": {"long": "a"}}, "byKey.long: the key is too long; at most 3 characters"),
    "value": ({"byKey": {"a": 5}}, "byKey.a: 5 is not a string; put it in quotes"),
    "amount": ({"amount": []}, 'amount: [] is not an amount such as 8, "500m" or "64Gi"'),
    "what has no sentence of its own": ({"inner": {"even": 3}}, "inner.even: 3 input should be a multiple of 2"),
}


def lines(resource: Any) -> tuple[str, ...]:
    given = {"wanted": "a", **resource} if isinstance(resource, dict) and resource else resource
    with pytest.raises(ValidationError) as refused:
        Outer.model_validate(given, strict=True)
    return describe_problems(refused.value, Outer)


@pytest.mark.parametrize(("resource", "line"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_each_mistake_has_one_line(resource: Any, line: str) -> None:
    assert lines(resource) == (line,)


def test_all_mistakes_are_told_at_once() -> None:
    assert lines({"count": 0, "rate": "x", "parts": [{"name": 1}]}) == (
        "parts[0].name: 1 is not a string; put it in quotes",
        "count: 0 is too small; at least 1",
        'rate: "x" is not a number; write it in digits',
    )


PATHS = {
    (): "",
    ("spec",): "spec",
    ("spec", "env", 2, "name"): "spec.env[2].name",
    ("a-b", "c_d"): "a-b.c_d",
    ("spec", "a.b/c"): 'spec["a.b/c"]',
    ("spec", ""): 'spec[""]',
}


@pytest.mark.parametrize(("parts", "path"), PATHS.items(), ids=PATHS.values())
def test_path_is_as_people_write_it(parts: tuple[int | str, ...], path: str) -> None:
    assert field_path(parts) == path


@pytest.mark.parametrize(
    ("length", "is_cut"), [(MAX_SHOWN - 2, False), (MAX_SHOWN - 1, True)], ids=["fits with its quotes", "one too many"]
)
def test_long_values_are_cut(length: int, is_cut: bool) -> None:
    text = quoted("x" * length)
    assert len(text) == MAX_SHOWN
    assert text.endswith("…") is is_cut


def test_unknown_field_of_the_root_has_no_dot() -> None:
    assert unknown_field("", "spek", ["spec"]) == "spek: there is no such field; did you mean spec?"
    assert unknown_field("", "spek:1", ["x"]).endswith("known: x")
    assert unknown_field("spec", "", ["x"]) == "spec.: there is no such field; known: x"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("https://me:secret@git.example/a", '"https://…@git.example/a"'),
        ({"proxy": "http://token@10.0.0.1:80"}, '{"proxy": "http://…@10.0.0.1:80"}'),
        ("https://git.example/a@b", '"https://git.example/a@b"'),
        ("me@example.com", '"me@example.com"'),
    ],
)
def test_password_of_an_address_is_not_repeated(value: object, text: str) -> None:
    assert quoted(value) == text
