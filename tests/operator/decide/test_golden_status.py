"""The statuses that 0.1.0 wrote (golden/status-0.1.0.json), which every later version reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, job, jobset, observed, status_of
from tests.operator.manifests import TRAINER
from tests.statuses import PATHS, flat
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.restart_accounting import crashes
from tpujob_operator.decide.chain import decide
from tpujob_operator.observe.report import Progress
from tpujob_resource.models.status import GROUPS, Status
from tpujob_resource.models.stored import read_status

STATUSES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "golden" / "status-0.1.0.json").read_text(encoding="utf-8")
)
TRAINS: dict[str, Any] = {"trainer": TRAINER, "command": None, "image": None}


@pytest.mark.parametrize("name", STATUSES)
def test_every_field_is_read(name: str) -> None:
    assert read_status(STATUSES[name]).as_stored() == STATUSES[name]
    assert Status.model_validate(STATUSES[name]).model_extra == {}


def test_golden_status_has_every_field() -> None:
    fields = {field.alias or name for name, field in Status.model_fields.items() if name not in GROUPS}
    assert flat(STATUSES["every field"]).keys() == fields | {*PATHS.values()}


def test_running_job_goes_on_with_its_books() -> None:
    progress = Progress(phase="training", step=7, steps=10, loss=2.5, committed_step=5, committed_at=NOW)
    seen = observed(job(status=STATUSES["running"], **TRAINS), jobset=jobset(restarts=1), hosts=BOTH, progress=progress)
    assert crashes(seen) == 1
    status, before = status_of(decide(seen, Settings())), flat(STATUSES["running"])
    kept = ("phase", "restarts.total", "restarts.charged", "internal.bookedRestarts", "lastCheckpointStep", "failure")
    assert {field: status[field] for field in kept} == {field: before[field] for field in kept}


def test_failed_job_stays_failed_with_its_cause() -> None:
    seen = observed(job(status=STATUSES["failed"], **TRAINS), jobset=jobset(outcome="Failed", restarts=1))
    status = status_of(decide(seen, Settings()))
    assert (status["phase"], status["failure"]["exitCode"]) == ("Failed", 78)
