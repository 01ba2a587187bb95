"""Attempts in the same pods reach the status, and are forgotten with the pods."""

from typing import Any

import pytest

from tests.operator.building import BOTH, job, jobset, observed, recorded
from tpujob_operator.decide.chain import decide
from tpujob_operator.observe.report import TEXT_LENGTH, progress_from_report
from tpujob_operator.settings import Settings

SETTINGS = Settings(network_policies=False)
CAUSE = "process 1 ended with exit code 137"
EARLIER: dict[str, Any] = {"inPlaceRestarts": 1, "inPlaceCause": CAUSE}

REPORTS: dict[str, tuple[dict[str, Any], tuple[int | None, str | None]]] = {
    # what the report says, and what the status then does of attempts in the same pods
    "another one": ({"in_place_restarts": 2, "in_place_cause": "process 0"}, (2, "process 0")),
    "of an older launcher": ({}, (1, CAUSE)),
    "new pods": ({"in_place_restarts": 0, "in_place_cause": None}, (None, None)),
    "nonsense": ({"in_place_restarts": "many", "in_place_cause": ["x"]}, (1, None)),
    "a negative number": ({"in_place_restarts": -1}, (1, CAUSE)),
    "far too long": ({"in_place_restarts": 2, "in_place_cause": "x" * 9999}, (2, "x" * TEXT_LENGTH)),
}


@pytest.mark.parametrize("name", REPORTS)
def test_status_says_what_the_report_does(name: str) -> None:
    report, expected = REPORTS[name]
    progress = progress_from_report({"phase": "training", "step": 7, **report})
    seen = observed(job(status=recorded(**EARLIER)), jobset=jobset(), hosts=BOTH, progress=progress)
    stored = decide(seen, SETTINGS).status.as_stored()
    assert (stored.get("inPlaceRestarts"), stored.get("inPlaceCause")) == expected


def test_new_pods_have_started_once() -> None:
    seen = observed(job(status=recorded(**EARLIER)), jobset=jobset(restarts=1))
    assert not decide(seen, SETTINGS).status.as_stored().keys() & EARLIER.keys()
