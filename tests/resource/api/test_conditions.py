"""The list of reasons and sentences, and how conditions are set."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.operator.building import NOW
from tpujob_operator.decide.record.status import difference
from tpujob_resource.messages.conditions import MESSAGE_LENGTH, Reason, Type, sentence, set_condition
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.status import Condition, Status
from tpujob_resource.models.stored import read_status
from tpujob_resource.models.times import format_time


@pytest.mark.parametrize("reason", list(Reason))
def test_reason_is_a_word_for_scripts(reason: Reason) -> None:
    assert re.fullmatch(r"[A-Z][A-Za-z]+", reason)


@pytest.mark.parametrize("word", [*Phase, *Type], ids=str)
def test_every_phase_and_condition_is_explained_to_people(word: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "status.md").read_text()
    assert re.search(rf"\b{word}\b", page)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_is_in_the_reference(reason: Reason) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "conditions.md").read_text()
    assert f"| `{reason}` |" in page


def test_long_message_keeps_both_ends() -> None:
    text = sentence(Reason.REJECTED, problems="first " + "x" * 5000 + " last")
    assert len(text) <= MESSAGE_LENGTH
    assert text.startswith("first ")
    assert text.endswith(" last")


def test_conditions_keep_their_order_and_others() -> None:
    theirs = {"type": "Theirs", "status": "True", "reason": "x", "lastTransitionTime": format_time(NOW)}
    conditions = [Condition.model_validate(theirs)]
    for kind in (Type.VALID, Type.RUNNING, Type.VALID):
        conditions = set_condition(
            conditions, kind, status=True, reason=Reason.ACCEPTED, message="m", generation=3, now=NOW
        )
    assert [c.type for c in conditions] == ["Theirs", "Valid", "Running"]
    assert Status(conditions=conditions).as_stored()["conditions"][0] == theirs
    assert conditions[1].observed_generation == 3


def test_transition_time_stays_when_only_the_message_changes() -> None:
    common: dict[str, Any] = {"reason": Reason.ACCEPTED, "generation": 1}
    first = set_condition([], Type.VALID, status=True, message="a", now=NOW, **common)
    later = NOW + timedelta(hours=1)
    (same,) = set_condition(first, Type.VALID, status=True, message="b", now=later, **common)
    (other,) = set_condition(first, Type.VALID, status=False, message="b", now=later, **common)
    assert (same.last_transition_time, same.message) == (NOW, "b")
    assert other.last_transition_time == later


@pytest.mark.parametrize(
    ("recorded", "wanted", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"step": 1}, {"step": 2}, {"step": 2}),
        ({"a": 1, "hosts": 2}, {"hosts": 2}, {"a": None}),
        ({"a": [1]}, {"a": [1], "goodput": {}}, {"goodput": {}}),
        ({"hosts": "many"}, {}, {}),
        ({"hosts": "many"}, {"hosts": 2}, {"hosts": 2}),
        # A merge patch leaves what it does not name: the next disruption would keep the trouble of a node that is gone.
        (
            {"disruption": {"attempt": 0, "node": "a", "trouble": "is gone"}},
            {"disruption": {"attempt": 1, "node": "b", "exitCode": 143}},
            {"disruption": {"attempt": 1, "node": "b", "exitCode": 143, "trouble": None}},
        ),
        ({"failure": {"host": "slice 0 host 1", "exitCode": 1}}, {}, {"failure": None}),
    ],
)
def test_patch_holds_the_difference(recorded: dict, wanted: dict, patch: dict) -> None:
    assert difference(read_status(recorded), read_status(wanted)) == patch
