"""The reference has every field, code, reason, command and value, and none that is not there."""

import re
from pathlib import Path

import pytest

from tools.reference.pages import FIRST, PAGES
from tools.reference.text import commented_values, fields
from tpujob_contract.exit_codes import KILLED, ExitCode
from tpujob_resource.messages.conditions import Reason
from tpujob_resource.messages.remedies import REMEDIES
from tpujob_resource.rules.trainer_rules import trainer_schema
from tpujob_trainer.model.config import PRESETS

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
MADE_ELSEWHERE = {"faults", "invariants", "licences", "metrics", "models", "outages", "recovery", "refusals"}
"""Of other commands: `tools.licences`, `tools.monitoring`, `tests.nights`, wrong inputs; `make` with `faults`,
`bench-recovery` or `reference-models`.
"""
BY_HAND = {"api"}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    assert (REFERENCE / f"{name}.md").read_text() == PAGES[name](), "run `make generate`"


def test_no_page_is_left_over() -> None:
    assert {file.stem for file in REFERENCE.glob("*.md")} == set(PAGES) | MADE_ELSEWHERE | BY_HAND


def test_every_trainer_field_is_described() -> None:
    found = list(fields(trainer_schema() or {}, "spec.trainer"))
    assert len(found) > 80
    assert [path for path, _, meaning in found if not meaning] == []


@pytest.mark.parametrize("name", ["resource", "trainer"])
def test_page_begins_with_the_twenty_fields_that_people_set_first(name: str) -> None:
    first, _, rarely = PAGES[name]().partition("### Rarely")
    shown = re.findall(r"^\| `spec\.([^`]+)`", first, re.MULTILINE)
    assert shown == [field for field in FIRST if field.startswith("trainer.") == (name == "trainer")]
    assert len(shown) == 20
    assert "| `spec." in rarely


def test_every_preset_is_there() -> None:
    shown = re.findall(r"^\| `([\w.-]+)`", (REFERENCE / "presets.md").read_text(), re.MULTILINE)
    assert shown == list(PRESETS)


def test_every_exit_code_says_what_to_do() -> None:
    assert set(REMEDIES) == {*ExitCode, KILLED}


def test_every_reason_says_what_to_do() -> None:
    assert [reason for reason in Reason if not reason.template or not reason.advice.endswith(".")] == []


def test_values_get_the_comment_above_them() -> None:
    text = "# An image.\nimage:\n  # Its name.\n  name: a\n  tag: b\n\nother: []\n"
    assert list(commented_values(text)) == [
        ("image.name", "a", "Its name."),
        ("image.tag", "b", "An image."),
        ("other", "[]", ""),
    ]


def test_every_value_of_the_chart_has_words() -> None:
    found = list(commented_values((ROOT / "charts" / "tpujob-operator" / "values.yaml").read_text()))
    assert [path for path, _, words in found if not words] == []
