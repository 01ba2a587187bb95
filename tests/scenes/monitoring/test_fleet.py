"""The chips dashboard on a recorded week: a real Prometheus has its samples, the numbers were counted by hand."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.charts.rendered import CHART
from tests.monitoring import week
from tests.scenes.monitoring.test_promtool import promtool
from tools.localcluster import binaries
from tools.localcluster.prometheus import query, start_prometheus_of_blocks
from tools.monitoring import promql
from tools.monitoring.dashboards import chips

MONDAY = week.MONDAY.timestamp()
UNTIL = MONDAY + week.HOURS * 3600
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
USEFUL = ("training", "evaluation", "unreported")
PAGE = Path(__file__).parents[3] / "docs" / "fleet.md"


@pytest.fixture(scope="module")
def recorded_week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has the week, and what the chart's rules record of it."""
    directory = tmp_path_factory.mktemp("week")
    samples = directory / "week.txt"
    samples.write_text(week.open_metrics())
    create_blocks("openmetrics", "-q", samples, directory / "data")
    program = binaries.path("prometheus")
    # The rules are evaluated by Prometheus, which has their blocks after its next start.
    first, address = start_prometheus_of_blocks(directory, program, sample_seconds=week.SAMPLE_SECONDS)
    try:
        span = (f"--start={MONDAY}", f"--end={UNTIL}", f"--eval-interval={promql.RECORDED_SECONDS}s")
        output = f"--output-dir={directory / 'data'}"
        create_blocks("rules", f"--url={address}", *span, output, CHART / "rules" / "fleet.yaml")
    finally:
        first.stop()
    process, address = start_prometheus_of_blocks(directory, program, sample_seconds=week.SAMPLE_SECONDS)
    yield address
    process.stop()


def create_blocks(*arguments: str | Path) -> None:
    """Blocks as long as promtool makes them: Prometheus takes long for the short ones that it would make of its own."""
    made = promtool("tsdb", "create-blocks-from", f"--max-block-duration={week.HOURS}h", *arguments)
    assert made.returncode == 0, made.stdout + made.stderr


def panel(url: str, title: str, *labels: str) -> dict[tuple[str, ...], float]:
    """The answer to the first query of a panel, by the values of these labels; zeros are left out."""
    [found] = [panel for panel in chips.DASHBOARD.panels if panel.title == title]
    answer = query(url, found.queries[0].expression.replace(chips.SPAN, SPAN), at=UNTIL)
    values = {tuple(each["metric"].get(label, "") for label in labels): float(each["value"][1]) for each in answer}
    return {key: value for key, value in values.items() if value}


def key(name: str) -> tuple[str, ...]:
    return tuple(name.split("/"))


def test_jobs_that_lost_most_are_those_counted_by_hand(recorded_week: str) -> None:
    lost = {
        key(name): job.chips * sum(hours for went, hours in job.went.items() if went not in USEFUL)
        for name, job in BY_HAND.items()
    }
    found = panel(recorded_week, "Jobs that lost most", *promql.JOB.split(", "))
    assert found == pytest.approx({name: hours for name, hours in lost.items() if hours}, abs=256 * 4 / 12)
    assert sorted(found, key=lambda name: -found[name])[:2] == [key("research/llama"), key("vision/stuck")]


def test_losses_to_restarts_have_their_causes(recorded_week: str) -> None:
    went = BY_HAND["research/llama"].went
    expected = {("Crash",): 256 * went["crashes"], ("Disruption",): 256 * went["disruption"]}
    assert panel(recorded_week, "Lost to restarts", "cause") == pytest.approx(expected, abs=256 / 6)
    assert panel(recorded_week, "Restarts", "cause") == {("Crash",): 1, ("Disruption",): 1}


def test_chip_hours_went_where_they_were_counted_by_hand(recorded_week: str) -> None:
    expected: dict[tuple[str, ...], float] = {("lost",): 256 * 6}
    for job in BY_HAND.values():
        for word, hours in job.went.items():
            went = "training" if word == "stalled" else word  # the process counts a step that hangs as training
            if went not in ("crashes", "disruption", "unreported"):
                expected[went,] = expected.get((went,), 0) + hours * job.chips
    assert panel(recorded_week, "What they went to", "went") == pytest.approx(expected, abs=256 * 4 / 12)


def test_chip_hours_that_were_held_add_up(recorded_week: str) -> None:
    found = panel(recorded_week, "By namespace, queue and owner", "job_namespace", "queue", "owner")
    held = {
        name: sum(job.held * job.chips for each, job in BY_HAND.items() if each.startswith(name))
        for name in ("research", "vision")
    }
    for namespace, hours in held.items():
        assert sum(value for of, value in found.items() if of[0] == namespace) == pytest.approx(hours, rel=0.01)


def test_queries_of_the_page_are_answered(recorded_week: str) -> None:
    queries = re.findall(r"```promql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    worst, why, restarts = (query(recorded_week, each, at=UNTIL) for each in queries)
    assert by_job(worst)["research/llama"] == pytest.approx(256 * 5, rel=0.02)
    assert {each["metric"]["phase"] for each in why} == {"Queued", "Starting", "Running", "Restarting"}
    assert {each["metric"]["cause"]: float(each["value"][1]) for each in restarts} == {"Crash": 1, "Disruption": 1}


@pytest.mark.parametrize("title", [panel.title for panel in chips.DASHBOARD.panels])
def test_dashboard_is_answered(recorded_week: str, title: str) -> None:
    [panel] = [panel for panel in chips.DASHBOARD.panels if panel.title == title]
    wanted = [each for each in panel.queries if each.legend != "held, idle"]  # No job is idle when the week ends.
    for each in wanted:
        assert query(recorded_week, each.expression.replace(chips.SPAN, SPAN), at=UNTIL), each.expression


def test_recorded_series_add_up_to_the_numbers_of_the_dashboard(recorded_week: str) -> None:
    hours = f"sum_over_time(tpujob:job_phase_chips:max[{SPAN}]) * {promql.RECORDED_SECONDS} / 3600"
    recorded, asked = (
        {label_set(each): float(each["value"][1]) for each in query(recorded_week, expression, at=UNTIL)}
        for expression in (hours, promql.hours_by_phase(SPAN))
    )
    assert len(recorded) >= len(BY_HAND)
    assert recorded == pytest.approx(asked, rel=0.05)  # Queued for two hours, less one step.


def by_job(samples: list[dict]) -> dict[str, float]:
    return {f"{s['metric']['job_namespace']}/{s['metric']['job_name']}": float(s["value"][1]) for s in samples}


def label_set(sample: dict) -> tuple[str, ...]:
    return tuple(sample["metric"].get(label, "") for label in promql.LABELS)
