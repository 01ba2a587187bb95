"""What `submit --replace` says of two specs."""

from typing import Any

import pytest

from tpujob.cluster.replacing import Replacement, changes


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({"slices": 1}, {"slices": 1}, []),
        (
            {"trainer": {"steps": 100, "seed": 1}},
            {"trainer": {"steps": 200, "seed": 1}},
            ["spec.trainer.steps: 100 → 200"],
        ),
        ({}, {"restarts": {"crashes": 9}}, ["spec.restarts.crashes: 9, which was not there"]),
        ({"restarts": {"crashes": 9}}, {}, ["spec.restarts.crashes: gone, it was 9"]),
        ({"capacity": {}}, {}, ["spec.capacity: gone, it was {}"]),
        ({"args": ["a"]}, {"args": ["a", "é"]}, ['spec.args: ["a"] → ["a", "é"]']),
        ({"suspend": True}, {"suspend": False}, ["spec.suspend: true → false"]),
        ({"image": "a" * 80}, {"image": "b"}, [f'spec.image: "{"a" * 58}… → "b"']),
        ({"trainer": {"a": 1}}, {"trainer": "x"}, ['spec.trainer: {"a": 1} → "x"']),
    ],
    ids=["nothing", "one", "added", "removed", "empty", "list", "boolean", "long", "another type"],
)
def test_each_field_that_differs_is_one_line(before: Any, after: Any, lines: list[str]) -> None:
    assert list(changes(before, after)) == lines


@pytest.mark.parametrize(
    ("before", "is_rehearsal", "words"),
    [
        (None, False, "created, as there was none"),
        (None, True, "would be created"),
        ({"steps": 2}, False, "nothing differs, and nothing was done"),
        ({"steps": 1}, True, "would be changed"),
    ],
)
def test_the_first_line_says_what_was_done(before: Any, is_rehearsal: bool, words: str) -> None:
    job = {"metadata": {"namespace": "team", "name": "llama"}}
    found = Replacement(job, before and {"spec": before}, {"steps": 2})
    assert next(found.lines(is_rehearsal=is_rehearsal)) == f"team/llama: {words}"
