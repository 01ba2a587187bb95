"""Prometheus finds the operator and the pods of jobs by the chart's monitors, and the chart's alerts fire and end."""

import pytest

from tests.e2e.jobs import FOR_EVER, PATIENCE, PATIENCE_SECONDS, Jobs
from tests.e2e.waiting import wait_for
from tools.localcluster import prometheus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]

JOB_LABELS = ("namespace", "pod", "tpujob", "slice", "host")
STALLS = """
import os, signal, sys, time
if os.environ["TPUJOB_HOST"] == "1":
    sys.exit(0)
while not os.path.exists("/tmp/go-on"):
    time.sleep(0.2)
"""
"""Host 1 has finished, and host 0 waits for something: a stall after two minutes."""
FIRES_SECONDS = (120 + 120 + 60) * PATIENCE
"""Until the job counts as stalled, for as long as the alert waits, and some more."""


@pytest.fixture
def url(jobs: Jobs) -> str:
    if not jobs.surroundings.is_own:
        pytest.skip("needs the Prometheus of `make cluster`, which has the chart's monitors and rules")
    assert jobs.surroundings.prometheus_url is not None
    return jobs.surroundings.prometheus_url


def test_stalled_job_fires_its_alert_and_another_trains(jobs: Jobs, url: str) -> None:
    jobs.run("stalls", STALLS)
    jobs.train("trains", steps=FOR_EVER)

    wait_for(
        "the steps of both hosts, by the monitor of jobs",
        lambda: hosts_scraped(url, jobs.namespace) == {("trains", "0", "0"), ("trains", "0", "1")},
        timeout_seconds=PATIENCE_SECONDS,
        explain=lambda: jobs.explain("trains"),
    )
    wait_for("the one leader", lambda: leaders(url) == [jobs.surroundings.operator_namespace])

    wait_for(
        "the alert",
        lambda: stalled(url, jobs.namespace) == ["stalls"],
        timeout_seconds=FIRES_SECONDS,
        explain=lambda: jobs.explain("stalls"),
    )
    assert jobs.status("stalls")["phase"] == "Stalled"
    (waiting,) = [pod for pod in jobs.pods("stalls") if pod["status"]["phase"] == "Running"]
    jobs.run_inside(waiting["metadata"]["name"], "open('/tmp/go-on', 'w').close()")

    jobs.wait_phase("stalls", "Succeeded")
    wait_for("the alert to end", lambda: not stalled(url, jobs.namespace), timeout_seconds=PATIENCE_SECONDS)
    assert jobs.status("trains")["phase"] == "Running"


def hosts_scraped(url: str, namespace: str) -> set[tuple[str, ...]]:
    found = [sample["metric"] for sample in prometheus.query(url, f'tpujob_step{{namespace="{namespace}"}} > 0')]
    assert all(set(JOB_LABELS) <= labels.keys() for labels in found)
    return {(labels["tpujob"], labels["slice"], labels["host"]) for labels in found}


def leaders(url: str) -> list[str]:
    return [each["metric"]["namespace"] for each in prometheus.query(url, "tpujob_operator_leader == 1")]


def stalled(url: str, namespace: str) -> list[str]:
    found = prometheus.firing(url, "TpuJobStalled")
    return [labels["job_name"] for labels in found if labels["job_namespace"] == namespace]
