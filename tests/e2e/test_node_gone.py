"""A machine loses its power in the middle of training: its pod never says a word, and its Node goes.

In place, the pod of the other machine stays. The one-machine cluster gets a second node for it. Each host asks for more
than half of a node's memory, so each has a machine to itself, as the hosts of a slice have.
"""

from collections.abc import Iterator
from decimal import Decimal

import pytest

from tests.e2e import operator_pod
from tests.e2e.jobs import FOR_EVER, PATIENCE, Jobs, jobs_in_namespace
from tests.e2e.surroundings import Surroundings
from tests.e2e.test_upgrade import JOB
from tests.e2e.waiting import wait_for
from tools.localcluster import background
from tools.localcluster.kubeconfig import api_of
from tools.localcluster.kubelet import FIRST, SECOND, is_ready
from tools.localcluster.second_machine import SecondMachine
from tpujob_contract.values.quantity import quantity

pytestmark = [pytest.mark.e2e, pytest.mark.afterwards, pytest.mark.faults, pytest.mark.timeout(1800)]

SHARE = Decimal("0.6")
"""Of a node's memory."""
SECONDS_BETWEEN_SAVES = 3
MIB = 2**20
NOTICED_SECONDS = 120 * PATIENCE
"""Kubernetes calls a node that is silent not ready after 50 s."""
REMOVED_SECONDS = 120 * PATIENCE
"""It removes the pods of a node that is gone after 40 s, looking every 20."""


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
    """A second machine, which afterwards is gone with its Node."""
    cluster = background.DIRECTORY
    machine = SecondMachine(cluster, api_of(cluster / "kubeconfig", cluster / "keys" / "ca.crt"))
    machine.start()
    try:
        yield machine
    finally:
        machine.lose_power()
        surroundings.client.kubectl("delete", "node", SECOND.name, "--ignore-not-found")


@pytest.mark.parametrize("in_place", [False, True], ids=["anew", "in place"])
def test_job_outlives_the_machine_of_one_of_its_hosts(jobs: Jobs, machine: SecondMachine, in_place: bool) -> None:
    jobs.train(
        JOB,
        steps=FOR_EVER,
        checkpoint={"everySeconds": SECONDS_BETWEEN_SAVES},
        resources={"requests": {"cpu": "100m", "memory": f"{more_than_half_of_a_node(jobs)}Mi"}},
        restarts={"crashes": 0},
        gracePeriodSeconds=15,
        inPlaceRestarts=3 if in_place else 0,
    )
    began = jobs.wait_until_it_trains(JOB)
    status = jobs.wait(JOB, "a checkpoint", lambda status: (status.get("lastCheckpointStep") or 0) > began)
    assert {pod["spec"]["nodeName"] for pod in jobs.pods(JOB)} == {FIRST.name, SECOND.name}
    before = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in jobs.pods(JOB)}

    machine.lose_power()
    wait_for("Kubernetes to notice", lambda: not is_ready(machine.api, SECOND.name), timeout_seconds=NOTICED_SECONDS)
    # As the node controller of a cloud does once there is no such machine.
    jobs.cluster.kubectl("delete", "node", SECOND.name)
    jobs.wait(JOB, "the cause", lambda now: f"Node {SECOND.name} is gone." in now["message"])
    wait_for(
        "its pod to go",
        lambda: SECOND.name not in {pod["spec"].get("nodeName") for pod in jobs.pods(JOB)},
        timeout_seconds=REMOVED_SECONDS,
        explain=lambda: jobs.explain(JOB),
    )
    if not in_place:
        jobs.wait(JOB, "the books", lambda now: now.get("disruptions"))

    machine.start()
    restored = jobs.wait_until_it_trains(JOB)
    assert restored >= status["lastCheckpointStep"]
    later = jobs.wait(
        JOB, "a later step", lambda now: now.get("phase") == "Running" and (now.get("step") or 0) > restored
    )
    assert (later["restarts"], later["disruptions"], later.get("crashes", 0)) == (1, 1, 0)
    assert "nodeFailures" not in later
    assert later["incarnation"] == status["incarnation"]
    kept = {pod["metadata"]["uid"] for pod in jobs.pods(JOB)} & before.keys()
    assert [before[uid] for uid in kept] == ([FIRST.name] if in_place else [])
    assert later.get("inPlaceTotal", 0) == in_place


def more_than_half_of_a_node(jobs: Jobs) -> int:
    """Mebibytes."""
    (node,) = (node for node in jobs.cluster.items("nodes", jobs.namespace) if node["metadata"]["name"] == FIRST.name)
    allocatable = quantity(node["status"]["allocatable"]["memory"])
    assert allocatable is not None
    return int(allocatable * SHARE / MIB)
