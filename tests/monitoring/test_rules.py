"""Every alert fires when it should and is quiet when it should be, on the oldest and on the newest Prometheus."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.charts.rendered import CHART
from tools.monitoring import families, fleet_rules, runbooks

ROOT = Path(__file__).parents[2]
FILE = CHART / "rules" / "tpujob.yaml"
FLEET = CHART / "rules" / "fleet.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks"
GROUPS = [group for file in (FILE, FLEET) for group in YAML(typ="safe", pure=True).load(file.read_text())["groups"]]
RULES = [rule for group in GROUPS for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDED = {rule["record"] for rule in RULES if "record" in rule}


@dataclass(frozen=True)
class Case:
    """Series of one sample a minute, and how many of an alert fire at a minute."""

    alert: str
    says: str
    fires: int
    minute: int
    series: dict[str, str] = field(default_factory=dict)


def job(phase: str) -> str:
    return f'tpujob_operator_job_phase{{job_namespace="ns",job_name="a",phase="{phase}",pod="o-1"}}'


def process(metric: str, host: int = 0, **labels: str) -> str:
    all_labels = {"namespace": "ns", "pod": f"a-{host}", "tpujob": "a", "slice": "0", "host": str(host), **labels}
    return f"{metric}{{{','.join(f'{key}="{value}"' for key, value in all_labels.items())}}}"


def crashes(values: str, pod: str = "o-1") -> dict[str, str]:
    return {
        f'tpujob_operator_job_restarts{{job_namespace="ns",job_name="a",cause="Crash",pod="{pod}"}}': values,
        f'tpujob_operator_job_restarts{{job_namespace="ns",job_name="a",cause="Disruption",pod="{pod}"}}': "0+9x200",
    }


def memory(peak: int) -> dict[str, str]:
    return {
        process("tpujob_device_memory_bytes", device="0", kind="peak"): f"{peak}x60",
        process("tpujob_device_memory_bytes", device="0", kind="limit"): "100x60",
        process("tpujob_device_memory_bytes", device="0", kind="in_use"): "1x60",
    }


def requests(failed_each_minute: int) -> dict[str, str]:
    name = 'tpujob_operator_api_requests_total{namespace="sys",pod="o-1",method="GET",resource="jobsets",status="%s"}'
    return {name % "200": "0+100x60", name % "503": f"0+{failed_each_minute}x60", name % "404": "0+50x60"}


COMMITTED = process("tpujob_checkpoint_committed_timestamp_seconds")
INTERVAL = process("tpujob_checkpoint_interval_seconds")
TRAINING = process("tpujob_phase_seconds_total", phase="training")
FAILING = process("tpujob_checkpoint_failing_since_timestamp_seconds")
WAITED = "tpujob_data_wait_seconds_total"
LEADER = 'tpujob_operator_leader{namespace="sys",pod="o-%d"}'
MISSED = 'tpujob_operator_watch_missed_objects{namespace="sys",pod="o-1"}'
GOODPUT = process("tpujob_goodput_ratio")
SPENT = process("tpujob_goodput_seconds", category="step")

CASES = [
    Case("TpuJobStalled", "no step for minutes", 1, 5, {job("Stalled"): "1x10"}),
    Case("TpuJobStalled", "it runs", 0, 5, {job("Running"): "1x10"}),
    Case("TpuJobStalled", "it runs again", 0, 12, {job("Stalled"): "1x5 stale", job("Running"): "_x6 1x10"}),
    Case(
        "TpuJobStalled",
        "another operator leads meanwhile",
        1,
        5,
        {
            job("Stalled"): "1x2 stale",
            job("Stalled").replace("o-1", "o-2"): "_x3 1x10",
        },
    ),
    Case("TpuJobCheckpointMissing", "the last one is old", 1, 60, {COMMITTED: "60x60", INTERVAL: "900x60"}),
    Case("TpuJobCheckpointMissing", "one every interval", 0, 60, {COMMITTED: "0+60x60", INTERVAL: "900x60"}),
    Case("TpuJobCheckpointMissing", "never one", 1, 60, {TRAINING: "0+60x60", INTERVAL: "900x60"}),
    Case("TpuJobCheckpointMissing", "too young for one", 0, 30, {TRAINING: "0+60x60", INTERVAL: "900x60"}),
    Case("TpuJobCheckpointMissing", "no checkpoints are wanted", 0, 60, {TRAINING: "0+60x60", INTERVAL: "0x60"}),
    Case("TpuJobSavesFailing", "for ten minutes", 1, 12, {FAILING: "60x20"}),
    Case("TpuJobSavesFailing", "for four minutes", 0, 5, {FAILING: "60x20"}),
    Case("TpuJobSavesFailing", "a commit ended it", 0, 15, {FAILING: "60x12 stale"}),
    Case("TpuJobCrashLoop", "three crashes in an hour", 1, 40, crashes("0x10 1x10 2x10 3x60")),
    Case("TpuJobCrashLoop", "three crashes in a day", 0, 180, crashes("0x59 1x59 2x59 3x59")),
    Case("TpuJobCrashLoop", "machines are lost, nothing crashes", 0, 40, crashes("0x60")),
    Case("TpuJobDataStarved", "half of the time", 1, 40, {process(WAITED): "0+30x60"}),
    Case("TpuJobDataStarved", "a second in each minute", 0, 40, {process(WAITED): "0+1x60"}),
    Case("TpuJobGoodputLow", "a long run", 1, 60, {GOODPUT: "0.3x60", SPENT: "8000x60"}),
    Case("TpuJobGoodputLow", "a run that has only started", 0, 60, {GOODPUT: "0.3x60", SPENT: "700x60"}),
    Case("TpuJobGoodputLow", "most of it counts", 0, 60, {GOODPUT: "0.9x60", SPENT: "8000x60"}),
    Case("TpuJobDeviceMemoryNearLimit", "97 of 100", 1, 20, memory(97)),
    Case("TpuJobDeviceMemoryNearLimit", "80 of 100", 0, 20, memory(80)),
    Case("TpuJobWaitingForCapacity", "two hours", 1, 120, {job("WaitingForCapacity"): "1x200"}),
    Case("TpuJobWaitingForCapacity", "half an hour", 0, 30, {job("WaitingForCapacity"): "1x200"}),
    Case("TpuJobQueuedLong", "five hours", 1, 300, {job("Queued"): "1x400"}),
    Case("TpuJobQueuedLong", "three hours", 0, 180, {job("Queued"): "1x400"}),
    Case(
        "TpuJobStraggler",
        "one host of four waits for data",
        1,
        30,
        {
            **{process(WAITED, host): "0+1x60" for host in range(3)},
            process(WAITED, 3): "0+30x60",
        },
    ),
    Case("TpuJobStraggler", "all hosts wait for data", 0, 30, {process(WAITED, host): "0+30x60" for host in range(4)}),
    Case(
        "TpuJobStraggler",
        "one host is twenty steps behind",
        1,
        30,
        {
            process("tpujob_step"): "100+5x60",
            process("tpujob_step", 1): "80+5x60",
        },
    ),
    Case(
        "TpuJobStraggler",
        "one step apart",
        0,
        30,
        {
            process("tpujob_step"): "100+5x60",
            process("tpujob_step", 1): "99+5x60",
        },
    ),
    Case("TpuJobOperatorDown", "nothing is scraped", 1, 10, {}),
    Case("TpuJobOperatorDown", "one is", 0, 10, {LEADER % 1: "1x20"}),
    Case("TpuJobOperatorWithoutLeader", "two operators, none leads", 1, 10, {LEADER % 1: "0x20", LEADER % 2: "0x20"}),
    Case(
        "TpuJobOperatorWithoutLeader",
        "the lead is handed over",
        0,
        10,
        {
            LEADER % 1: "1x5 0x20",
            LEADER % 2: "0x5 1x20",
        },
    ),
    Case("TpuJobOperatorApiErrors", "one request of five", 1, 20, requests(40)),
    Case("TpuJobOperatorApiErrors", "what is not found is no error", 0, 20, requests(0)),
    Case("TpuJobOperatorWatchStale", "for ten minutes", 1, 10, {MISSED: "2x20"}),
    Case("TpuJobOperatorWatchStale", "a moment", 0, 10, {MISSED: "0x8 2x1 0x9"}),
]


def test_every_alert_is_seen_to_fire_and_to_be_quiet():
    for quiet, counts in ((True, {0}), (False, {1})):
        assert {case.alert for case in CASES if case.fires in counts} == ALERTS.keys(), f"{quiet=}"


def test_rules_of_chips_are_what_the_command_line_asks():
    assert FLEET.read_text() == fleet_rules.written(), "make generate"


def test_rules_use_metrics_that_exist():
    exported = {name for family in (*families.trainer(), *families.operator()) for name in family.series}
    used = {name for rule in RULES for name in re.findall(r"\btpujob[_:][\w:]*", rule["expr"])}
    assert used - exported - RECORDED == set()


def test_every_alert_has_a_runbook():
    assert {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"} == ALERTS.keys()
    for name in ALERTS:
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert text.startswith(f"# {name}\n")
        assert [line for line in text.splitlines() if line.startswith("## ")] == ["## What it means", "## What to do"]
        first = "tpujob doctor" if name.startswith("TpuJobOperator") else "tpujob describe NAME"
        assert text.split("## What to do\n\n1. `")[1].startswith(first), name


@pytest.mark.parametrize("name", ALERTS)
def test_list_of_runbooks_says_how_grave_and_how_long(name):
    [row] = [line for line in (RUNBOOKS / "README.md").read_text().splitlines() if f"({name}.md)" in line]
    _, _, severity, _, waits, _ = (cell.strip() for cell in row.split("|"))
    assert (severity, waits) == (ALERTS[name]["labels"]["severity"], ALERTS[name].get("for", "at once"))


def test_generated_steps_are_those_of_the_runbooks():
    assert runbooks.FILE.read_text() == runbooks.written(), "make generate"
