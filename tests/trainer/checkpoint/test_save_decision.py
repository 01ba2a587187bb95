"""Whether a save starts."""

import json
from typing import Any

import pytest

from tpujob_trainer.checkpoint.save_decision import Decision, SavePlan, decide

NOTHING: dict[str, Any] = {"under_way": None, "is_committed": False, "is_failing": False, "is_taken": False}


@pytest.mark.parametrize(
    ("given", "decision"),
    [
        ({}, Decision.START),
        ({"is_committed": True}, Decision.ALREADY_SAVED),
        ({"is_committed": True, "is_failing": True}, Decision.ALREADY_SAVED),
        ({"is_failing": True}, Decision.ASK_ALL),
        ({"is_taken": True}, Decision.ASK_ALL),
        ({"under_way": 7}, Decision.POSTPONE),
        ({"under_way": 7, "is_failing": True}, Decision.POSTPONE),
    ],
)
def test_decision_follows_from_what_is_there(given: dict, decision: Decision) -> None:
    assert decide(**NOTHING | given).decision == decision


def test_postponed_save_names_the_step_that_it_waits_for() -> None:
    assert decide(**NOTHING | {"under_way": 7}).reason == "step 7 is still being saved"


def test_plan_is_the_same_after_its_way_to_the_other_processes() -> None:
    plan = SavePlan(Decision.POSTPONE, "step 7 is still being saved")
    assert SavePlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
