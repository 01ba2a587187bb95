"""What chip-hours went to, from statuses and from sums: tables."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tpujob.errors import CommandError
from tpujob.fleet.by import By
from tpujob.fleet.from_status import usage
from tpujob.fleet.groups import grouped, worst
from tpujob.fleet.report import report, to_json
from tpujob.fleet.span import of_promql, parse_span
from tpujob.fleet.text import lines
from tpujob.fleet.usage import JobUsage, Labels, Use, Went, account
from tpujob_contract.kubernetes_names import OWNER_LABEL
from tpujob_resource.models.restart_causes import Cause

NOW = datetime(2026, 1, 12, tzinfo=UTC)
SINCE = datetime(2026, 1, 5, tzinfo=UTC)
HOUR = 3600


def job(spec: dict[str, Any] | None = None, *, labels: dict[str, str] | None = None, **status: Any) -> dict[str, Any]:
    """A job of four hosts of four chips."""
    return {
        "metadata": {"namespace": "ml", "name": "a", "labels": labels or {}},
        "spec": {"accelerator": "v5e-16", **(spec or {})},
        "status": {"hosts": 4, "startTime": "2026-01-06T00:00:00Z", **status},
    }


def used(*jobs: dict[str, Any]) -> list[JobUsage]:
    return usage(jobs, owner_label=OWNER_LABEL, since=SINCE, now=NOW).jobs


@pytest.mark.parametrize(
    ("phase", "used_idle_waiting"),
    [
        ("Running", (16, 0, 0)),
        ("Starting", (0, 16, 0)),
        ("Restarting", (0, 16, 0)),
        ("Stalled", (0, 16, 0)),
        ("Stopping", (0, 16, 0)),
        ("Queued", (0, 0, 16)),
        ("WaitingForCapacity", (0, 0, 16)),
        ("Suspended", (0, 0, 0)),
        ("Succeeded", (0, 0, 0)),
        ("Invalid", (0, 0, 0)),
    ],
)
def test_phase_says_whether_chips_are_used_idle_or_waited_for(phase, used_idle_waiting):
    [found] = used(job(phase=phase))
    assert (found.use.used, found.use.idle, found.use.waiting) == used_idle_waiting


@pytest.mark.parametrize(
    ("status", "went"),
    [
        pytest.param({"phase": "Running", "goodput": {"step": HOUR}}, {Went.TRAINING: 16}, id="it trains"),
        pytest.param(
            {"phase": "Running", "goodput": {"start": HOUR, "restore": HOUR, "compile": HOUR}},
            {Went.STARTING: 48},
            id="three categories are starting",
        ),
        pytest.param(
            {"goodput": {"step": HOUR, "lost_steps": 3 * HOUR}, "restarts": 3, "disruptions": 1},
            {Went.TRAINING: 16, Went.CRASHES: 32, Went.DISRUPTION: 16},
            id="what was lost is divided among causes by their number",
        ),
        pytest.param(
            {"goodput": {"lost_steps": HOUR}, "restarts": 2, "capacityRestarts": 1, "unexplainedRestarts": 1},
            {Went.DISRUPTION: 8, Went.UNEXPLAINED: 8},
            id="missing machines are a disruption",
        ),
        pytest.param({"goodput": {"lost_steps": HOUR}}, {Went.UNEXPLAINED: 16}, id="steps lost without a restart"),
        pytest.param(
            {"goodput": {"step": HOUR, "between_attempts": 9 * HOUR}},
            {Went.TRAINING: 16},
            id="machines may not be held between attempts",
        ),
        pytest.param({"goodput": {"of a newer trainer": HOUR}}, {}, id="a category that is not known"),
        pytest.param(
            {"phase": "Succeeded", "completionTime": "2026-01-06T02:00:00Z"},
            {Went.UNREPORTED: 32},
            id="no report, from start to end",
        ),
        pytest.param({"phase": "Running"}, {Went.UNREPORTED: 16 * 24 * 6}, id="no report, from start to now"),
        pytest.param({"phase": "Suspended"}, {}, id="no report, and it may have held nothing"),
        pytest.param({"phase": "Queued", "startTime": None}, {}, id="never started"),
    ],
)
def test_status_says_what_chip_hours_went_to(status, went):
    [found] = used(job(**status))
    assert found.use.went == went


@pytest.mark.parametrize(
    ("completed", "counts"),
    [("2026-01-04T23:59:59Z", 0), ("2026-01-05T00:00:00Z", 1), (None, 1)],
)
def test_job_that_ended_before_the_span_does_not_count(completed, counts):
    assert len(used(job(completionTime=completed, startTime="2026-01-01T00:00:00Z"))) == counts


def test_status_tells_what_it_lacks():
    early = job(startTime="2026-01-01T00:00:00Z", phase="Running", goodput={"step": 1})
    found = usage([early, job(phase="Running")], owner_label=OWNER_LABEL, since=SINCE, now=NOW)
    assert (found.began_before, found.without_report) == (1, 1)


@pytest.mark.parametrize(
    ("spec", "labels", "expected"),
    [
        ({}, {}, Labels(namespace="ml", job="a", accelerator="v5e-16")),
        ({"queue": "q"}, {}, Labels(namespace="ml", job="a", accelerator="v5e-16", queue="q")),
        ({}, {OWNER_LABEL: "ana"}, Labels(namespace="ml", job="a", accelerator="v5e-16", owner="ana")),
        ({"capacity": {"spot": True}}, {}, Labels(namespace="ml", job="a", accelerator="v5e-16", is_spot=True)),
    ],
)
def test_labels_are_those_of_the_resource(spec, labels, expected):
    [found] = used(job(spec, labels=labels))
    assert found.labels == expected


@pytest.mark.parametrize(
    ("held", "reported", "restarts", "went"),
    [
        pytest.param({}, {}, {}, {}, id="nothing"),
        pytest.param({"Queued": 9}, {}, {}, {}, id="what is waited for is not held"),
        pytest.param({"Running": 5, "Starting": 1}, {}, {}, {Went.UNREPORTED: 6}, id="nobody reports"),
        pytest.param(
            {"Running": 10, "Restarting": 2, "Starting": 1},
            {"training": 7, "lost": 2, "starting": 1},
            {Cause.CRASH: 1},
            {Went.TRAINING: 7, Went.STARTING: 1, Went.CRASHES: 4, Went.UNREPORTED: 1},
            id="machines held between attempts are lost",
        ),
        pytest.param(
            {"Running": 4, "Stalled": 6},
            {"training": 10},
            {},
            {Went.TRAINING: 4, Went.STALLED: 6},
            id="a step that hangs is no training",
        ),
        pytest.param(
            {"Stalled": 6}, {"data": 6}, {}, {Went.DATA: 6}, id="data that never comes is what a stall is about"
        ),
    ],
)
def test_account_adds_up_to_what_was_held(held, reported, restarts, went):
    found = account(held, reported, restarts)
    assert found == went
    assert sum(found.values()) == pytest.approx(sum(hours for phase, hours in held.items() if phase != "Queued"))


def one(name: str, *, accelerator: str = "v5e-16", spot: bool = False, **went: float) -> JobUsage:
    labels = Labels(namespace="ml", job=name, accelerator=accelerator, is_spot=spot)
    return JobUsage(labels=labels, use=Use(went={key: went[key] for key in Went if key in went}))


def test_worst_are_the_five_that_lost_most():
    jobs = [one(f"j{number}", training=1000, crashes=number) for number in range(8)]
    assert [group.name for group in worst([*jobs, one("unknown", unreported=900)])] == [
        f"ml/j{n}" for n in range(7, 2, -1)
    ]


@pytest.mark.parametrize(
    ("jobs", "cost"),
    [
        ([one("a", training=10)], 12),
        ([one("a", training=10, crashes=10)], 24),
        ([one("a", training=10, spot=True)], 5),
        ([one("a", accelerator="cpu:2x1")], 0),
    ],
)
def test_cost_is_of_the_hours_held(jobs, cost):
    [group] = grouped(jobs, By.NAMESPACE, {"chipHour": {"v5e": 1.2}, "spotChipHour": {"v5e": 0.5}})
    assert group.cost == pytest.approx(cost)


def test_price_that_is_missing_is_named():
    with pytest.raises(CommandError, match=r"--prices: spotChipHour has no v5e; it has nothing"):
        grouped([one("a", training=1, spot=True)], By.JOB, {"chipHour": {"v5e": 1}})


@pytest.mark.parametrize(("text", "promql"), [("12h", "12h"), ("7d", "168h"), ("2w", "336h"), ("366d", "8784h")])
def test_span_is_hours_days_or_weeks(text, promql):
    assert of_promql(parse_span(text)) == promql


@pytest.mark.parametrize("text", ["", "7", "0d", "-1d", "7m", "1.5d", "367d", "99999w", "7d[", "7 d"])
def test_span_of_another_form_is_refused(text):
    with pytest.raises(CommandError, match=r"--since: .* write hours, days or weeks"):
        parse_span(text)


def page(*jobs: JobUsage, by: By = By.NAMESPACE, **prices: Any) -> list[str]:
    made = report(jobs, since=SINCE, until=NOW, source="here", missing=["x " * 60], by=by, prices=prices or None)
    assert to_json(made)["total"]["jobs"] == len(jobs)
    return list(lines(made))


def test_page_of_many_jobs_with_long_names_is_one_screen():
    names = [f"{'long-name-' * 6}{number}" for number in range(40)]
    use = Use(went=dict.fromkeys(Went, 1e6))
    found = page(*(replace(one(name), use=use) for name in names), by=By.JOB, currency="EUR", chipHour={"v5e": 9.9})
    assert max(map(len, found)) <= 80
    assert len(found) <= 60
    assert "25 more: -o json has all" in found


def test_page_without_jobs_says_so():
    assert page()[-1] == "No job held or waited for TPU chips."


def test_group_without_a_queue_has_a_name():
    assert any(line.startswith("(no queue) ") for line in page(one("a", training=1), by=By.QUEUE))
