"""What is charged to a job, as a table of two looks at it."""

from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, ended, host, job, jobset, observed, recorded, status_of, stored
from tests.statuses import grouped
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.first_failure import first_failure
from tpujob_operator.decide.causes.restart_accounting import (
    account,
    crashes,
    next_restart,
    recorded_between,
    restarts_in_a_row,
    unexplained_in_a_row,
    with_recorded_restarts,
)
from tpujob_operator.decide.chain import decide
from tpujob_operator.observe.report import Progress
from tpujob_operator.observe.state import Ended, LostNode, Observed
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.status import Status
from tpujob_resource.models.stored import read_status

AFTER_TWO: dict[str, Any] = {"restarts.charged": 2, "internal.bookedRestarts": 2, "internal.crashedAtStep": 100}
AFTER_TWO_NEWER = {**AFTER_TWO, "lastCheckpointStep": 150}
COMMITTED_150 = Progress(phase="training", step=160, committed_step=150)
FREED = ended(0, 143, attempt=2, was_asked=True, asked_at=NOW)
STOPPED = tuple(ended(index, 75, was_asked=True, asked_at=NOW) for index in (0, 1))
HAD_RUN: dict[str, Any] = {"startTime": "2030-01-01T11:00:00Z", "hostsReady": 0, "phase": "Stopping"}
AT_REST: dict[str, Any] = {"status": HAD_RUN, "hosts": (), "suspended": True}
LOST: dict[str, Any] = {
    "progress.stepTime": "2030-01-01T11:30:00Z",
    "internal.disruption": {
        "attempt": 0,
        "pod": "llama-w-0-0-abcde",
        "exitCode": 75,
        "askedAt": "2030-01-01T11:40:00Z",
    },
}
IN_A_ROW = (
    "internal.restartsWithoutProgress",
    "internal.unexplainedWithoutProgress",
    "internal.restartedAtStep",
    "internal.restartTime",
)
SUSPENSION = {"internal.bookedRestarts": 1, "internal.suspensionRestarts": 1}


def seen(
    restarts: int, *ends: Ended, status: dict[str, Any] | None = None, suspended: bool = False, **fields: Any
) -> Observed:
    spec = fields.pop("spec", {})
    its = jobset(restarts=restarts, suspended=suspended)
    values: dict[str, Any] = {"hosts": BOTH, "ended": ends, "jobset": its, **fields}
    return observed(job(status=recorded(**status or {}), **spec), **values)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(seen(0), {}, id="nothing happened"),
        pytest.param(
            seen(1, ended(0, 1)),
            {"internal.bookedRestarts": 1, "restarts.charged": 1, "internal.crashedAtStep": 0},
            id="the first crash",
        ),
        pytest.param(seen(2, ended(0, 1, attempt=1), status=AFTER_TWO), {}, id="booked already"),
        pytest.param(
            seen(3, ended(0, 1, attempt=2), status={**AFTER_TWO, "lastCheckpointStep": 100}),
            {"internal.bookedRestarts": 3, "restarts.charged": 3, "internal.crashedAtStep": 100},
            id="no newer checkpoint",
        ),
        pytest.param(
            seen(3, ended(0, 1, attempt=2), status=AFTER_TWO_NEWER),
            {"internal.bookedRestarts": 3, "restarts.charged": 1, "internal.crashedAtStep": 150},
            id="a newer checkpoint refills",
        ),
        pytest.param(
            seen(3, ended(0, 1, attempt=2), status={**AFTER_TWO, "lastCheckpointStep": 100}, progress=COMMITTED_150),
            {"internal.bookedRestarts": 3, "restarts.charged": 1, "internal.crashedAtStep": 150},
            id="a newer checkpoint in the same look refills",
        ),
        pytest.param(
            seen(3, FREED, status=AFTER_TWO_NEWER),
            {"internal.bookedRestarts": 3, "restarts.disruptions": 1},
            id="a disruption is free",
        ),
        pytest.param(
            seen(3, status={**AFTER_TWO, "restarts.disruptions": 4}),
            {"internal.bookedRestarts": 3, "restarts.unexplained": 1},
            id="what nobody saw is no crash",
        ),
        pytest.param(
            seen(4, ended(1, 1, attempt=3), status=AFTER_TWO),
            {
                "internal.bookedRestarts": 4,
                "restarts.charged": 3,
                "restarts.unexplained": 1,
                "internal.crashedAtStep": 0,
            },
            id="one of two missed",
        ),
        pytest.param(seen(1, ended(0, 1), hosts=()), {}, id="a host has not told yet"),
        pytest.param(
            seen(1, ended(0, 1), ended(1, 75, asked_at=NOW), hosts=()),
            {"internal.bookedRestarts": 1, "restarts.charged": 1, "internal.crashedAtStep": 0},
            id="every host has told",
        ),
        pytest.param(
            seen(1, ended(0, 1), lost_nodes=(LostNode(attempt=0, name="n", trouble="is gone"),)),
            {"internal.bookedRestarts": 1, "restarts.disruptions": 1},
            id="a node explains the crash beside it",
        ),
        pytest.param(seen(1, *STOPPED, **AT_REST), SUSPENSION, id="a suspension is no restart"),
        pytest.param(seen(1, **AT_REST), SUSPENSION, id="a suspension that nobody saw is no restart"),
        pytest.param(
            seen(1, *STOPPED, status=HAD_RUN), SUSPENSION, id="a suspension that a queue ends while pods still stop"
        ),
        pytest.param(
            seen(1, status={**HAD_RUN, "phase": "Queued"}),
            SUSPENSION,
            id="a suspension that shows after the next start",
        ),
        pytest.param(
            seen(1, status={**HAD_RUN, "phase": "Queued", "startTime": None}),
            {"internal.bookedRestarts": 1, "restarts.unexplained": 1},
            id="an end that nobody saw, of a job that has not run before",
        ),
        pytest.param(
            seen(1, status={**HAD_RUN, "phase": "Starting"}, hosts=()), SUSPENSION, id="a suspension that shows late"
        ),
        pytest.param(
            seen(1, hosts=(host(0, attempt=1),), status={**HAD_RUN, **LOST, "phase": "Starting"}),
            {"internal.bookedRestarts": 1, "restarts.disruptions": 1},
            id="a disruption that an operator before has seen, of hosts that have run since the last rest",
        ),
        pytest.param(
            seen(1, ended(0, 1), *STOPPED[1:], **AT_REST),
            {"internal.bookedRestarts": 1, "restarts.charged": 1, "internal.crashedAtStep": 0},
            id="a crash before the suspension",
        ),
        pytest.param(
            seen(1, *STOPPED, **AT_REST | {"status": {**HAD_RUN, "restarts.total": 1}}),
            {"internal.bookedRestarts": 1, "restarts.disruptions": 1},
            id="a disruption before the suspension",
        ),
        pytest.param(
            seen(3, **AT_REST | {"status": {**HAD_RUN, **SUSPENSION, "restarts.total": 1}}),
            {"internal.bookedRestarts": 3, "internal.suspensionRestarts": 2, "restarts.unexplained": 1},
            id="a restart, another suspension",
        ),
        pytest.param(
            seen(1, hosts=(), status={"phase": "Starting"}), {}, id="a first start has no suspension behind it"
        ),
    ],
)
def test_restarts_are_booked_by_cause(found: Observed, expected: dict[str, Any]) -> None:
    fields = stored(account(found))
    assert {field: fields[field] for field in fields if field not in IN_A_ROW} == expected


def test_any_number_of_restarts_is_booked_at_once() -> None:
    fields = stored(account(seen(2**31 - 1, ended(0, 1, attempt=2**31 - 2))))
    assert (fields["internal.bookedRestarts"], fields["restarts.charged"], fields["restarts.unexplained"]) == (
        2**31 - 1,
        1,
        2**31 - 2,
    )


def test_counting_twice_changes_nothing() -> None:
    first = seen(1, ended(0, 1))
    again = seen(1, ended(0, 1), status=stored(account(first)))
    assert account(again) == {}
    assert crashes(first) == crashes(again) == 1
    assert with_recorded_restarts(again) == again.status


def test_restarts_for_a_suspension_do_not_show() -> None:
    first = status_of(decide(seen(1, *STOPPED, **AT_REST, spec={"suspend": True}), Settings()))
    assert "restarts.total" not in first
    later = status_of(decide(seen(2, *STOPPED, status={**first, "phase": "Running"}), Settings()))
    assert (later["restarts.total"], later["internal.suspensionRestarts"]) == (1, 1)


def test_recorded_failure_is_evidence_after_a_restart_of_the_operator() -> None:
    before = seen(0, ended(1, 139))
    recorded_before = stored({"failure": first_failure(before)})
    assert account(seen(1, status=recorded_before))["restarts.charged"] == 1


def test_a_job_without_its_jobset_has_the_crashes_it_had() -> None:
    assert crashes(observed(job(status=recorded(**AFTER_TWO)))) == 2


def test_restarts_are_told_apart_for_the_metrics() -> None:
    before = {"internal.bookedRestarts": 2, "restarts.disruptions": 1, "restarts.charged": 1}
    free = {
        "restarts.disruptions": 2,
        "restarts.unexplained": 1,
        "restarts.capacity": 1,
        "internal.suspensionRestarts": 1,
    }
    after = {"internal.bookedRestarts": 7, "restarts.charged": 2, **free}
    earlier, later = read_status(grouped(before)), read_status(grouped(after))
    assert +recorded_between(earlier, later) == dict.fromkeys(Cause, 1)
    assert +recorded_between(later, later) == {}
    assert +recorded_between(later, read_status(grouped({"incarnation": 2}))) == {}


BETWEEN: dict[str, Any] = {**AFTER_TWO, "internal.bookedRestarts": 3, "restarts.charged": 3}


@pytest.mark.parametrize(
    ("found", "crashes_then"),
    [
        # The end belongs to an attempt that is booked: a newer checkpoint makes no crash of it.
        (seen(3, ended(0, 1, attempt=2), status={**BETWEEN, "lastCheckpointStep": 150}), 3),
        (seen(4, ended(0, 1, attempt=2), ended(0, 1, attempt=3), status={**BETWEEN, "lastCheckpointStep": 150}), 1),
        (seen(4, ended(0, 1, attempt=2), ended(0, 1, attempt=3), status={**BETWEEN, "lastCheckpointStep": 100}), 4),
        (seen(4, ended(0, 1, attempt=2), FREED, status={**BETWEEN, "lastCheckpointStep": 100}), 3),
    ],
    ids=["nothing new", "a newer checkpoint", "the same checkpoint", "an end nobody saw"],
)
def test_ends_of_booked_attempts_are_charged_once(found: Observed, crashes_then: int) -> None:
    assert crashes(found) == crashes_then


def test_a_job_that_has_not_restarted_says_nothing_of_restarts() -> None:
    assert "restarts.total" not in status_of(decide(seen(0), Settings()))
    assert decide(seen(1, ended(0, 1), hosts=BOTH), Settings()).status.restarts.total == 1


def test_job_that_was_never_restarted_has_none_in_a_row() -> None:
    fresh = seen(0)
    assert (restarts_in_a_row(fresh), unexplained_in_a_row(fresh), crashes(fresh)) == (0, 0, 0)
    assert next_restart(fresh, 10.0) is None


def test_first_restart_of_a_job_is_one_more() -> None:
    assert recorded_between(Status(), Status()) == {}
    booked = Status().updated({"internal.booked_restarts": 1})
    assert recorded_between(Status(), booked)[Cause.CRASH] == 1
    assert recorded_between(booked, Status()) == {}


def test_job_that_has_failed_has_no_ready_hosts() -> None:
    after = decide(seen(0, ended(0, 78)), Settings()).status
    assert (after.phase, after.hosts_ready) == ("Failed", 0)
