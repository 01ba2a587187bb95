"""A lost pod is one pod: with the real JobSet, Job controller and scheduler, on machines of all kinds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenes.control_plane.fleet import HOSTS, Fleet, counts, fleet_of, pools, scheduled_plane
from tools.localcluster import nodes, pods
from tools.localcluster.api import Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for
from tpujob_contract.exit_codes import KILLED

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory, custom_resources: list[Path]) -> Iterator[ControlPlane]:
    with scheduled_plane(tmp_path_factory.mktemp("scheduled"), custom_resources) as plane:
        yield plane


@pytest.fixture
def fleet(scheduled: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with fleet_of(scheduled, request) as found:
        yield found


def test_slices_that_have_pools_of_their_own(fleet: Fleet) -> None:
    """JobSet pins followers to the pool of their leader, host 0 of the slice, and keeps other slices out of it."""
    for name in "abc":
        fleet.add_pool(name)
    first = fleet.train(slices=2)
    lead = first[0, 0]
    fleet.wait_phase("llama", "Running")
    where = pools(fleet, first)
    assert sorted(map(len, where.values())) == [1, 1]

    fleet.lose(first[1, 2])
    second = fleet.replaced(first, (1, 2))
    assert counts(fleet.go_on(6, lead=lead)) == {"restarts.total": 1, "restarts.inPlace": 1, "restarts.disruptions": 1}

    fleet.lose(second[1, 0])
    third = fleet.replaced(second, (1, 0))
    assert counts(fleet.go_on(4, lead=lead)) == {"restarts.total": 2, "restarts.inPlace": 2, "restarts.disruptions": 2}
    assert pools(fleet, third) == where, "a leader without its followers would have any free pool"

    # A container that is killed leaves its pod behind. JobSet 0.12 takes it for a second leader, and refuses followers.
    pods.set_failed(fleet.api, third[1, 0], exit_code=KILLED)
    fourth = fleet.replaced(third, (1, 0))
    fleet.go_on(4, lead=lead)
    fleet.lose(fourth[1, 3])
    in_the_way = third[1, 0]["metadata"]["name"]
    status = fleet.wait("llama", "the reason", lambda s: reason_of(s) == "PodNotReplaced")
    assert f"`kubectl delete pod {in_the_way}` helps. The others wait for it up to 600 s" in status["message"]
    fleet.delete_pod(third[1, 0])
    fifth = fleet.replaced(fourth, (1, 3))
    status = fleet.go_on(7, lead=lead)
    assert counts(status) == {"restarts.total": 4, "restarts.inPlace": 4, "restarts.disruptions": 3}, status[
        "restarts.inPlaceAttempts"
    ]
    assert pools(fleet, fifth) == where

    # A whole slice may go elsewhere.
    lost = [(1, host) for host in range(HOSTS)]
    (old,) = where[1]
    for host in range(HOSTS):
        fleet.api.patch(f"/api/v1/nodes/{fleet.node(old, host)}", {"spec": {"unschedulable": True}})
    for at in lost:
        fleet.lose(fifth[at])
    sixth = fleet.replaced(fifth, *lost)
    status = fleet.go_on(4, lead=lead)
    assert counts(status) == {"restarts.total": 5, "restarts.inPlace": 5, "restarts.disruptions": 4}
    assert pools(fleet, sixth)[0] == where[0]
    (new,) = pools(fleet, sixth)[1]
    assert new not in (old, *where[0])
    assert [each["reason"] for each in fleet.events("llama")].count("PodNotReplaced") == 1


def reason_of(status: Object) -> str:
    return next((each["reason"] for each in status["conditions"] if each["type"] == "Running"), "")


def test_a_spot_machine_that_is_taken_away(fleet: Fleet) -> None:
    """Its pod stays until its node is gone. The new one waits for a machine, and the others for it."""
    spot: Any = {
        "labels": {"cloud.google.com/gke-spot": "true"},
        "taints": [{"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}],
    }
    for name in "ab":
        fleet.add_pool(name, **spot)
    at_once = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    unwell = [{"key": f"node.kubernetes.io/{taint}", **at_once} for taint in ("not-ready", "unreachable")]
    first = fleet.train(slices=2, capacity={"spot": True}, tolerations=unwell)
    fleet.wait_phase("llama", "Running")
    pod = first[1, 2]

    nodes.set_node_ready(fleet.api, pod["spec"]["nodeName"], ready=False)
    path = f"/api/v1/namespaces/{fleet.namespace}/pods/{pod['metadata']['name']}"
    wait_for("its eviction", lambda: "deletionTimestamp" in fleet.api.get(path)["metadata"], timeout_seconds=120)
    status = fleet.wait("llama", "the loss", lambda s: s["phase"] != "Running")
    assert (1, 2) not in fleet.there(), "its machine may still run it"
    nodes.delete_node(fleet.api, pod["spec"]["nodeName"])
    status = fleet.wait_phase("llama", "WaitingForCapacity")
    assert "7 of 8 hosts have arrived" in status["message"]
    assert not counts(status)
    fleet.add_node(*fleet.machine(pod), **spot)
    second = fleet.replaced(first, (1, 2))
    status = fleet.go_on(6, lead=first[0, 0])
    assert counts(status) == {"restarts.total": 1, "restarts.inPlace": 1, "restarts.disruptions": 1}

    # No machine comes for the next one within startupSeconds, after which the launchers give up.
    nodes.delete_node(fleet.api, second[0, 1]["spec"]["nodeName"])
    fleet.lose(second[0, 1])
    fleet.wait_phase("llama", "WaitingForCapacity")
    with fleet.at_one_moment():
        for at, other in second.items():
            if at != (0, 1):
                pods.set_failed(fleet.api, other, exit_code=1, message="lost process 1: its connection broke")
    fleet.add_node(*fleet.machine(second[0, 1]), **spot)
    fleet.run_all(2 * HOSTS, other_than=list(second.values()))
    status = fleet.wait_phase("llama", "Running")
    assert counts(status) == {
        "restarts.total": 2,
        "restarts.inPlace": 1,
        "restarts.disruptions": 2,
        "internal.bookedRestarts": 1,
    }
