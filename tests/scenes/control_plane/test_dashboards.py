"""A real Prometheus that scrapes real runs and a real operator answers every query of every dashboard."""

from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tests.scenes.control_plane.monitored import Scenario, played, write_text
from tools.localcluster.prometheus import query
from tools.localcluster.waiting import wait_for

pytestmark = [pytest.mark.control_plane, pytest.mark.processes, pytest.mark.monitoring, pytest.mark.timeout(1500)]

NEEDS_TPU = ("tpujob_mfu_ratio", "tpujob_mfu_causal_ratio", "tpujob_device_memory_bytes")
"""CPUs have neither: the peak of their arithmetic is not known, and they report no memory."""
NEEDS_FAILED_UNITS = ("tpujob_unit_failures",)
NEEDS_LOCAL_COPIES = ("tpujob_local_copy_timestamp_seconds",)
NEEDS_FAILING_SAVES = ("tpujob_checkpoint_failing_since_timestamp_seconds",)


def unanswered(scenario: Scenario) -> set[str]:
    return {expression for expression, text in scenario.queries() if not query(scenario.url, text)}


def those_of(scenario: Scenario, metrics: tuple[str, ...]) -> set[str]:
    return {expression for expression, _ in scenario.queries() if any(metric in expression for metric in metrics)}


def test_every_query_is_answered(jobs: Jobs, operator: OperatorProcess, tmp_path: Path) -> None:
    with played(jobs, operator, tmp_path, write_text(tmp_path / "data")) as scenario:
        scenario.crash_and_go_on()
        never = (*NEEDS_TPU, *NEEDS_FAILED_UNITS, *NEEDS_LOCAL_COPIES)
        wait_for_unanswered(scenario, (*never, *NEEDS_FAILING_SAVES))
        scenario.let_saves_fail()
        wait_for_unanswered(scenario, never)


def wait_for_unanswered(scenario: Scenario, metrics: tuple[str, ...]) -> None:
    """Returns when only the queries of these metrics are without an answer."""
    expected = those_of(scenario, metrics)
    assert expected
    wait_for(
        "all other queries to be answered",
        lambda: unanswered(scenario) == expected,
        timeout_seconds=400,
        explain=lambda: "\n".join(sorted(unanswered(scenario) ^ expected)),
    )
