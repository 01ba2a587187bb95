"""Statuses that an earlier release wrote (tests/operator/decide/earlier): read as they were meant, and not rewritten.

They were made by the code before modules had rooms, from the same few objects as here.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, job, jobset, observed
from tests.operator.manifests import TRAINER
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.restart_accounting import crashes
from tpujob_operator.observe.state import Progress
from tpujob_operator.settings import Settings
from tpujob_resource.models.status import Status

STATUSES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "earlier" / "statuses.json").read_text(encoding="utf-8")
)
TRAINS: dict[str, Any] = {"trainer": TRAINER, "command": None, "image": None}


@pytest.mark.parametrize("name", STATUSES)
def test_every_field_is_known_still(name: str) -> None:
    read = Status.model_validate(STATUSES[name]).model_dump(by_alias=True, mode="json", exclude_none=True)
    assert {field: read[field] for field in STATUSES[name] if field != "failure"} == {
        field: value for field, value in STATUSES[name].items() if field != "failure"
    }
    failure = STATUSES[name].get("failure", {})
    assert {field: read["failure"][field] for field in failure} == failure


def test_running_job_goes_on_with_its_books() -> None:
    progress = Progress(phase="training", step=7, steps=10, loss=2.5, committed_step=5, committed_at=NOW)
    seen = observed(job(status=STATUSES["running"], **TRAINS), jobset=jobset(restarts=1), hosts=BOTH, progress=progress)
    assert crashes(seen) == 1
    status = decide(seen, Settings()).status.as_stored()
    kept = ("phase", "restarts", "crashes", "crashedAtStep", "bookedRestarts", "lastCheckpointStep", "failure")
    assert {field: status[field] for field in kept} == {field: STATUSES["running"][field] for field in kept}


def test_failed_job_stays_failed_with_its_cause() -> None:
    seen = observed(job(status=STATUSES["failed"], **TRAINS), jobset=jobset(outcome="Failed", restarts=1))
    status = decide(seen, Settings()).status.as_stored()
    assert (status["phase"], status["failure"]["exitCode"]) == ("Failed", 78)
