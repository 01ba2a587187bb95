"""Over how many parts of a mesh the rows of a batch divide."""

from typing import Any

import pytest

from tpujob_contract.batch_rows import divide_slice, rows_problem

DIVIDED: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    # name: (devices of a slice and the rest, devices along context and what is left)
    "one device": ({"devices": 1, "slices": 1}, (1, 1)),
    "all are left": ({"devices": 8, "slices": 1}, (1, 8)),
    "axes take their part": ({"devices": 16, "slices": 1, "tensor": 2, "context": 2, "expert": 2}, (2, 2)),
    "a size that is given": ({"devices": 8, "slices": 1, "fsdp": 4}, (1, 8)),
    "a row for each": ({"devices": 8, "slices": 1, "rows": 8, "positions": 64}, (1, 8)),
    "a row for two": ({"devices": 8, "slices": 1, "rows": 4, "positions": 64}, (2, 4)),
    "a row for all": ({"devices": 8, "slices": 1, "rows": 1, "positions": 64}, (8, 1)),
    "a row for each, two slices": ({"devices": 4, "slices": 2, "rows": 8, "positions": 64}, (1, 4)),
    "a row for two, two slices": ({"devices": 4, "slices": 2, "rows": 4, "positions": 64}, (2, 2)),
    "a row for a slice": ({"devices": 4, "slices": 2, "rows": 2, "positions": 64}, (4, 1)),
    "fewer rows than slices": ({"devices": 4, "slices": 2, "rows": 1, "positions": 64}, (1, 4)),
    "beside the axis tensor": ({"devices": 8, "slices": 1, "tensor": 2, "rows": 2, "positions": 64}, (2, 2)),
    "rows for all that the axis tensor leaves": (
        {"devices": 8, "slices": 1, "tensor": 2, "rows": 4, "positions": 64},
        (1, 4),
    ),
    "beside the axis expert": ({"devices": 8, "slices": 1, "expert": 2, "rows": 4, "positions": 64}, (2, 2)),
    "rows that divide over one alone": ({"devices": 8, "slices": 1, "rows": 3, "positions": 64}, (8, 1)),
    "positions that do not divide": ({"devices": 8, "slices": 1, "rows": 4, "positions": 63}, (1, 8)),
    "positions that divide otherwise": ({"devices": 6, "slices": 1, "rows": 2, "positions": 9}, (3, 2)),
    "rows alone": ({"devices": 8, "slices": 1, "rows": 4}, (1, 8)),
    "positions alone": ({"devices": 8, "slices": 1, "positions": 64}, (1, 8)),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_devices_are_divided_so_that_rows_are(name: str) -> None:
    given, expected = DIVIDED[name]
    assert divide_slice(**given) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"slices": 1, "context": 3, "positions": 64}, "context: 3 does not divide sequenceLength (64)"),
        ({"slices": 1, "tensor": 3}, "tensor: tensor x context x expert is 3, which does not divide the 8 devices"),
        ({"slices": 1, "tensor": 2, "context": 2, "expert": 4}, "tensor x context x expert is 16"),
        ({"slices": 1, "tensor": 2, "fsdp": 8}, "fsdp: 8 does not divide the 4 devices that are left of a slice"),
    ],
    ids=["positions", "tensor", "all axes", "fsdp"],
)
def test_size_that_does_not_divide_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(").replace(")", r"\)")):
        divide_slice(8, **given)


@pytest.mark.parametrize(
    ("rows", "given", "said"),
    [
        (8, {"parts": 4, "devices": 4}, None),
        (8, {"parts": 4, "devices": 4, "accumulation": 2}, None),
        (9, {"parts": 4, "devices": 4}, "9 rows do not divide over 4 devices; 8, 12 and 16 do"),
        (3, {"parts": 4, "devices": 4}, "3 rows do not divide over 4 devices; 4, 8 and 12 do"),
        (9, {"parts": 2, "devices": 4}, "9 rows do not divide over 2 groups of 4 devices; 8, 10 and 12 do"),
        (
            12,
            {"parts": 4, "devices": 4, "accumulation": 2, "derived": "the default"},
            "12 rows (the default) do not divide over 4 devices in 2 parts (gradientAccumulation); 8, 16 and 24 do",
        ),
    ],
    ids=["divide", "in parts", "more", "fewer", "groups", "in parts, derived"],
)
def test_numbers_that_would_do_are_named(rows: int, given: dict[str, Any], said: str | None) -> None:
    assert rows_problem(rows, **given) == said
