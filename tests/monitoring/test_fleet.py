"""`tpujob fleet` on a recorded week: a real Prometheus has its samples, the numbers are those of a count by hand."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.charts.rendered import CHART
from tests.monitoring import week
from tests.monitoring.test_rules import promtool
from tools.localcluster import binaries
from tools.localcluster.prometheus import query, start_prometheus_of_blocks
from tools.monitoring.dashboards import chips
from tpujob.fleet import promql

UNTIL = week.MONDAY.timestamp() + week.HOURS * 3600
SPAN = f"{week.HOURS}h"
STEPS_OFF = 2
"""How many steps of five minutes a number may differ by: a phase or an attempt is met at its begin and at its end."""


@dataclass(frozen=True)
class ByHand:
    """What a job used in the week, counted by hand from tests/monitoring/week.py: hours, to be multiplied by chips."""

    chips: int
    held: float
    waited: float = 0
    went: dict[str, float] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)

    @property
    def tolerance(self) -> float:
        return self.chips * STEPS_OFF * promql.STEP_SECONDS / 3600


BY_HAND = {
    # Of the three attempts, 44, 46 and 66 hours were steps; 4 and 2 of these were lost. Two hours between attempts are
    # lost, too: 8 hours, half of them to each of two restarts. Before its first start, and twice after a restart, half
    # an hour went by until process 0 began.
    "research/llama": ByHand(
        256,
        held=166,
        waited=2,
        went={
            "training": 44 + 46 + 66 - 4 - 2,
            "data": 2,
            "saving": 1,
            "evaluation": 2,
            "starting": 0.25 + 0.25 + 0.5 + 0.5,
            "crashes": 4,
            "disruption": 4,
            "unreported": 0.5 + 0.5 + 0.5,
        },
        restarts={"Crash": 1, "Disruption": 1},
    ),
    # 40 hours are of this week, 24 more of the one before.
    "research/small": ByHand(16, held=40, went={"training": 36, "data": 4}),
    "vision/stuck": ByHand(8, held=24, went={"training": 14, "stalled": 10}),
    "vision/own": ByHand(8, held=10, went={"unreported": 10}),
    "vision/late": ByHand(64, held=0, waited=8),
    # Of two runs of one name, what the first one reported is gone.
    "research/again": ByHand(4, held=16, went={"training": 6, "unreported": 10}),
}
PRICES = "currency: EUR\nchipHour: {v5e: 1.2, v6e: 2.7, v4: 3.2}\nspotChipHour: {v5e: 0.5}\n"
COSTS = {
    "large": 166 * 256 * 1.2,
    "small": 40 * 16 * 0.5,
    "": 24 * 8 * 2.7 + 16 * 4 * 1.2,
    "a": 5 * 8 * 3.2,
    "b": 5 * 8 * 3.2,
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that has the week, and what the chart's rules record of it."""
    directory = tmp_path_factory.mktemp("week")
    samples = directory / "week.txt"
    samples.write_text(week.open_metrics())
    made = promtool("promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", samples, directory / "data")
    assert made.returncode == 0, made.stderr
    program = binaries.path("prometheus")
    # The rules are evaluated by Prometheus, which has their blocks after its next start.
    first, address = start_prometheus_of_blocks(directory, program, sample_seconds=week.SAMPLE_SECONDS)
    try:
        options = [
            f"--url={address}",
            f"--start={UNTIL - week.HOURS * 3600}",
            f"--end={UNTIL}",
            f"--eval-interval={promql.RECORDED_SECONDS}s",
        ]
        rules = CHART / "rules" / "fleet.yaml"
        output = f"--output-dir={directory / 'data'}"
        made = promtool("promtool", "tsdb", "create-blocks-from", "rules", *options, output, rules)
        assert made.returncode == 0, made.stdout + made.stderr
    finally:
        first.stop()
    process, address = start_prometheus_of_blocks(directory, program, sample_seconds=week.SAMPLE_SECONDS)
    yield address
    process.stop()


def fleet(url: str, *arguments: str) -> str:
    """What the command prints of the recorded week, in 80 columns."""
    command = [sys.executable, "-m", "tpujob", "fleet", "--until=2026-01-12", *arguments]
    environ = {**os.environ, "TPUJOB_PROMETHEUS": url}
    result = subprocess.run(command, env=environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_numbers_of_each_job_are_those_counted_by_hand(url: str) -> None:
    found = {group["name"]: group for group in json.loads(fleet(url, "--by=job", "-ojson"))["groups"]}
    assert found.keys() == BY_HAND.keys()
    for name, job in BY_HAND.items():
        group = found[name]
        assert group["chip_hours"]["held"] == pytest.approx(job.held * job.chips, abs=job.tolerance), name
        assert group["chip_hours"]["waiting"] == pytest.approx(job.waited * job.chips, abs=job.tolerance), name
        expected = {went: hours * job.chips for went, hours in job.went.items()}
        shown = {went: hours for went, hours in group["went"].items() if went in expected or hours > job.tolerance}
        assert shown == pytest.approx(expected, abs=job.tolerance), name
        assert group["restarts"] == job.restarts, name


def test_chips_at_the_end_are_those_of_jobs_that_are_there(url: str) -> None:
    found = {group["name"]: group["chips"] for group in json.loads(fleet(url, "-ojson"))["groups"]}
    assert found == {
        "research": {"used": 256, "idle": 0, "waiting": 0},
        "vision": {"used": 0, "idle": 0, "waiting": 64},
    }


def test_chip_hours_cost_what_they_cost_where_they_were_held(url: str, tmp_path: Path) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(PRICES)
    found = json.loads(fleet(url, "--by=queue", f"--prices={prices}", "-ojson"))
    costs = {group["name"]: group["cost"] for group in found["groups"] if group["chip_hours"]["held"]}
    assert costs == pytest.approx(COSTS, rel=0.01, abs=3.2 * 8 / 6)
    assert found["total"]["cost"] == pytest.approx(sum(COSTS.values()), rel=0.01)


def test_worst_jobs_and_why_are_on_one_screen(url: str) -> None:
    lines = fleet(url, "--by=owner").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    heading = lines.index("Jobs that lost most chip-hours")
    names = [line.split()[0] for line in lines[heading + 1 :] if not line.startswith("    ")]
    assert names == ["research/llama", "vision/stuck", "research/small"]
    assert lines[heading + 2].startswith("    crashes 1,024, disruption 1,024, waiting for data 512, starting 384;")


def test_time_without_an_operator_is_said_to_be_missing(url: str) -> None:
    assert "missing" not in fleet(url)
    assert "for 216 of these 336 hours" in fleet(url, "--since=2w")


def test_dashboard_has_the_numbers_of_the_command(url: str) -> None:
    shown = {group["name"]: group for group in json.loads(fleet(url, "--by=job", "-ojson"))["groups"]}
    lost = {name: group["chip_hours"]["lost"] for name, group in shown.items() if group["chip_hours"]["lost"]}
    panels = {panel.title: panel.queries[0].expression.replace(chips.SPAN, SPAN) for panel in chips.DASHBOARD.panels}
    answer = by_job(query(url, panels["Jobs that lost most"], at=UNTIL))
    assert {name: value for name, value in answer.items() if value} == pytest.approx(lost, rel=0.001, abs=0.01)
    by_cause = {
        each["metric"]["cause"]: float(each["value"][1]) for each in query(url, panels["Lost to restarts"], at=UNTIL)
    }
    went = shown["research/llama"]["went"]
    assert by_cause == pytest.approx({"Crash": went["crashes"], "Disruption": went["disruption"]}, rel=0.001)


@pytest.mark.parametrize("title", [panel.title for panel in chips.DASHBOARD.panels])
def test_dashboard_is_answered(url: str, title: str) -> None:
    [panel] = [panel for panel in chips.DASHBOARD.panels if panel.title == title]
    wanted = [each for each in panel.queries if each.legend != "held, idle"]  # No job is idle when the week ends.
    for each in wanted:
        assert query(url, each.expression.replace(chips.SPAN, SPAN), at=UNTIL), each.expression


def test_recorded_series_add_up_to_the_numbers_of_the_command(url: str) -> None:
    hours = f"sum_over_time(tpujob:job_phase_chips:max[{SPAN}]) * {promql.RECORDED_SECONDS} / 3600"
    recorded = {label_set(each): float(each["value"][1]) for each in query(url, hours, at=UNTIL)}
    asked = {label_set(each): float(each["value"][1]) for each in query(url, promql.hours_by_phase(SPAN), at=UNTIL)}
    assert len(recorded) >= len(BY_HAND)
    assert recorded == pytest.approx(asked, rel=0.05)  # Queued for two hours, less one step.


def by_job(samples: list[dict]) -> dict[str, float]:
    return {f"{s['metric']['job_namespace']}/{s['metric']['job_name']}": float(s["value"][1]) for s in samples}


def label_set(sample: dict) -> tuple[str, ...]:
    return tuple(sample["metric"].get(label, "") for label in promql.LABELS)
