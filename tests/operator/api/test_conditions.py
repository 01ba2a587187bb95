"""The list of reasons and sentences, and how conditions are set."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.operator.building import NOW
from tpujob_operator.api.conditions import MESSAGE_LENGTH, SENTENCES, Reason, Type, sentence, set_condition
from tpujob_operator.api.status import Phase
from tpujob_operator.decide.status import difference
from tpujob_operator.observe.state import format_time


def test_every_reason_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Reason)


@pytest.mark.parametrize("reason", list(Reason))
def test_reason_is_a_word_for_scripts(reason: Reason) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]+", reason)


@pytest.mark.parametrize("word", [*Phase, *Type, *Reason], ids=str)
def test_every_word_is_explained_to_people(word: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "status.md").read_text()
    assert re.search(rf"\b{word}\b", page)


def test_long_message_keeps_both_ends() -> None:
    text = sentence(Reason.REJECTED, problems="first " + "x" * 5000 + " last")
    assert len(text) <= MESSAGE_LENGTH
    assert text.startswith("first ")
    assert text.endswith(" last")


def test_conditions_keep_their_order_and_others() -> None:
    theirs = {"type": "Theirs", "status": "True", "reason": "x", "lastTransitionTime": format_time(NOW)}
    conditions: list[dict[str, Any]] = [theirs]
    for kind in (Type.VALID, Type.RUNNING, Type.VALID):
        conditions = set_condition(
            conditions, kind, status=True, reason=Reason.ACCEPTED, message="m", generation=3, now=NOW
        )
    assert [c["type"] for c in conditions] == ["Theirs", "Valid", "Running"]
    assert conditions[0] == theirs
    assert conditions[1]["observedGeneration"] == 3


def test_transition_time_stays_when_only_the_message_changes() -> None:
    common: dict[str, Any] = {"reason": Reason.ACCEPTED, "generation": 1}
    first = set_condition([], Type.VALID, status=True, message="a", now=NOW, **common)
    later = NOW + timedelta(hours=1)
    (same,) = set_condition(first, Type.VALID, status=True, message="b", now=later, **common)
    (other,) = set_condition(first, Type.VALID, status=False, message="b", now=later, **common)
    assert (same["lastTransitionTime"], same["message"]) == (format_time(NOW), "b")
    assert other["lastTransitionTime"] == format_time(later)


@pytest.mark.parametrize(
    ("recorded", "wanted", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"b": 2}, {"a": None}),
        ({"a": [1]}, {"a": [1], "b": {}}, {"b": {}}),
    ],
)
def test_patch_holds_the_difference(recorded: dict, wanted: dict, patch: dict) -> None:
    assert difference(recorded, wanted) == patch
