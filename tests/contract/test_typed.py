"""Which decoded values are of a declared type."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Dict, List, Literal, Optional, TypedDict  # noqa: UP035 - as the contract writes them

import pytest

from tpujob_contract.typed import MOST, mistyped, typed


class Declared(TypedDict, total=False):
    number: Optional[float]  # noqa: UP045
    count: int
    flag: bool
    word: str | None
    phase: Literal["a", "b"]
    by_name: Optional[Dict[str, int]]  # noqa: UP006, UP045
    sums: List[float]  # noqa: UP006
    anything: Any


@pytest.mark.parametrize(
    ("name", "value", "is_kept"),
    [
        ("number", 1.5, True),
        ("number", 3, True),
        ("number", None, True),
        ("number", math.inf, True),
        ("number", "1.5", False),
        ("number", True, False),
        ("number", MOST, False),
        ("count", 3, True),
        ("count", 3.0, False),
        ("count", None, False),
        ("count", True, False),
        ("count", -MOST, False),
        ("flag", True, True),
        ("flag", 1, False),
        ("word", "a", True),
        ("word", ["a"], False),
        ("phase", "b", True),
        ("phase", "c", False),
        ("phase", ["b"], False),
        ("by_name", {"a": 1}, True),
        ("by_name", {"a": "1"}, False),
        ("by_name", [], False),
        ("sums", [1, 2.5], True),
        ("sums", [1, "2"], False),
        ("sums", 1, False),
        ("anything", [{}], True),
        ("of a later release", 1, False),
    ],
)
def test_only_values_of_the_declared_type_are_kept(name: str, value: object, is_kept: bool) -> None:
    assert typed({name: value}, Declared) == ({name: value} if is_kept else {})


def test_fields_of_another_type_are_named() -> None:
    @dataclasses.dataclass
    class Result:
        rows: int
        parts: tuple[str, ...] = ()

    assert mistyped(Result(1, ("a",))) == {}
    assert mistyped(Result("1", (2,))) == {"rows": "1", "parts": (2,)}  # type: ignore[arg-type]
