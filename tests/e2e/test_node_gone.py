"""A machine loses its power in the middle of training: its pod never says a word, and its Node goes.

In place, the pod of the other machine stays.
"""

from collections.abc import Iterator

import pytest

from tests.e2e import node_loss, operator_pod
from tests.e2e.jobs import FOR_EVER, Jobs, jobs_in_namespace
from tests.e2e.surroundings import Surroundings
from tests.e2e.test_upgrade import JOB
from tools.localcluster.kubelet import FIRST, SECOND
from tools.localcluster.second_machine import SecondMachine

pytestmark = [pytest.mark.e2e, pytest.mark.afterwards, pytest.mark.faults, pytest.mark.timeout(1800)]

SECONDS_BETWEEN_SAVES = 3


@pytest.fixture(scope="module", autouse=True)
def quick_operator(surroundings: Surroundings, text: str) -> Iterator[None]:
    if not surroundings.is_own:
        pytest.skip("gives `make cluster` a second node, and nobody else")
    with (
        jobs_in_namespace(surroundings, text, "node-gone", {}) as jobs,
        operator_pod.with_settings(jobs, **operator_pod.QUICKLY),
    ):
        yield


@pytest.fixture
def machine(surroundings: Surroundings) -> Iterator[SecondMachine]:
    with node_loss.second_machine(surroundings) as machine:
        yield machine


@pytest.mark.parametrize("in_place", [False, True], ids=["anew", "in place"])
def test_job_outlives_the_machine_of_one_of_its_hosts(jobs: Jobs, machine: SecondMachine, in_place: bool) -> None:
    jobs.train(
        JOB,
        steps=FOR_EVER,
        checkpoint={"everySeconds": SECONDS_BETWEEN_SAVES},
        resources={"requests": {"cpu": "100m", "memory": node_loss.more_than_half_of_a_node(jobs)}},
        restarts={"crashes": 0},
        gracePeriodSeconds=15,
        inPlaceRestarts=3 if in_place else 0,
    )
    began = jobs.wait_until_it_trains(JOB)
    status = jobs.wait(JOB, "a checkpoint", lambda status: (status.get("lastCheckpointStep") or 0) > began)
    assert {pod["spec"]["nodeName"] for pod in jobs.pods(JOB)} == {FIRST.name, SECOND.name}
    before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in jobs.pods(JOB)}

    node_loss.lose(jobs, machine)
    jobs.wait(JOB, "the cause", lambda now: f"Node {SECOND.name} is gone." in now["message"])
    node_loss.wait_until_pods_are_gone(jobs, JOB)
    if not in_place:
        jobs.wait(JOB, "the books", lambda now: now.get("restarts.disruptions"))

    machine.start()
    restored = jobs.wait_until_it_trains(JOB)
    assert restored >= status["lastCheckpointStep"]
    later = jobs.wait(
        JOB, "a later step", lambda now: now.get("phase") == "Running" and (now.get("step") or 0) > restored
    )
    assert (later["restarts.total"], later["restarts.disruptions"], later.get("restarts.charged", 0)) == (1, 1, 0)
    assert "nodeFailures" not in later
    assert later["incarnation"] == status["incarnation"]
    kept = {pod["metadata"]["uid"] for pod in jobs.pods(JOB)} & before.keys()
    assert [before[uid] for uid in kept] == ([FIRST.name] if in_place else [])
    assert later.get("restarts.inPlace", 0) == in_place
