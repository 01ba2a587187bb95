"""The loss of a machine of the one-machine cluster, which gets a second node for it.

Each host of such a job asks for more than half of a node's memory, so each has a machine to itself, as the hosts of a
slice have.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

from tests.e2e.jobs import PATIENCE, Jobs
from tests.e2e.surroundings import Surroundings
from tests.e2e.waiting import wait_for
from tools.localcluster import background
from tools.localcluster.kubeconfig import api_of
from tools.localcluster.kubelet import FIRST, SECOND, is_ready
from tools.localcluster.second_machine import SecondMachine
from tpujob_contract.quantity import quantity

SHARE = Decimal("0.6")
"""Of a node's memory."""
MIB = 2**20
NOTICED_SECONDS = 120 * PATIENCE
"""Kubernetes calls a node that is silent not ready after 50 s."""
REMOVED_SECONDS = 120 * PATIENCE
"""It removes the pods of a node that is gone after 40 s, looking every 20."""


@contextmanager
def second_machine(surroundings: Surroundings) -> Iterator[SecondMachine]:
    """A second machine, which afterwards is gone with its Node."""
    cluster = background.DIRECTORY
    machine = SecondMachine(cluster, api_of(cluster / "kubeconfig", cluster / "keys" / "ca.crt"))
    machine.start()
    try:
        yield machine
    finally:
        machine.lose_power()
        surroundings.client.kubectl("delete", "node", SECOND.name, "--ignore-not-found")


def lose(jobs: Jobs, machine: SecondMachine) -> None:
    """Ends the machine, and its Node, as the node controller of a cloud does once there is no such machine."""
    machine.lose_power()
    wait_for("Kubernetes to notice", lambda: not is_ready(machine.api, SECOND.name), timeout_seconds=NOTICED_SECONDS)
    jobs.cluster.kubectl("delete", "node", SECOND.name)


def wait_until_pods_are_gone(jobs: Jobs, job: str) -> None:
    """Until Kubernetes has removed the pods of the lost machine."""
    wait_for(
        "its pod to go",
        lambda: SECOND.name not in {pod["spec"].get("nodeName") for pod in jobs.pods(job)},
        timeout_seconds=REMOVED_SECONDS,
        explain=lambda: jobs.explain(job),
    )


def more_than_half_of_a_node(jobs: Jobs) -> str:
    """A quantity of memory."""
    (node,) = (node for node in jobs.cluster.items("nodes", jobs.namespace) if node["metadata"]["name"] == FIRST.name)
    allocatable = quantity(node["status"]["allocatable"]["memory"])
    assert allocatable is not None
    return f"{int(allocatable * SHARE / MIB)}Mi"
