"""A lost pod of a queued job is one pod: the job keeps its quota and its place, with the real Kueue."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.scenes.control_plane.fleet import HOSTS, POOL, SLICE, Fleet, counts, fleet_of, pools
from tests.scenes.control_plane.test_kueue import QUOTAS, create, queues
from tools.localcluster.api import Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.kueue import API_VERSION

__all__ = ["queues"]

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(900)]

KEPT = ("QuotaReserved", "Admitted")


@pytest.fixture
def fleet(queues: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with fleet_of(queues, request) as found:
        yield found


@pytest.mark.parametrize("placement", [None, {"requiredTopology": POOL}], ids=["pools by JobSet", "pools by Kueue"])
def test_a_queued_job_keeps_its_quota_and_its_place(fleet: Fleet, placement: Object | None) -> None:
    """Another job waits for all of the quota: it would have it if a pod's share were given back for a moment."""
    mark = {"key": "flavor", "operator": "Equal", "value": "spot", "effect": "NoSchedule"}
    make_queue(fleet, chips=2 * 16, topology="pools" if placement else None, toleration=mark)
    for name in "abc":
        taint = {"key": "flavor", "value": "spot", "effect": "NoSchedule"}
        fleet.add_pool(name, labels={"flavor": fleet.namespace}, taints=[taint])
    queued = {"queue": "fleet", "placement": placement}
    first = fleet.train(slices=2, **queued)
    fleet.wait_phase("llama", "Running")
    fleet.create("rival", **{**SLICE, **queued, "slices": 2})
    fleet.wait("rival", "its Workload", lambda s: "insufficient unused quota" in s.get("message", ""))
    (admitted,) = (each for each in workloads(fleet) if "admission" in each["status"])
    where = pools(fleet, first)

    found = first
    for number, lost in enumerate([(1, 2), (1, 0), (0, 0)], start=1):
        fleet.lose(found[lost])
        found = fleet.replaced(found, lost)
        spec = found[lost]["spec"]
        assert spec["nodeSelector"]["flavor"] == fleet.namespace
        assert mark in spec["tolerations"]
        status = fleet.go_on(HOSTS * lost[0] + lost[1], lead=first[0, 0])
        assert counts(status) == {"restarts.total": number, "restarts.inPlace": number, "restarts.disruptions": number}
    assert pools(fleet, found) == where

    (same,) = (each for each in workloads(fleet) if each["metadata"]["uid"] == admitted["metadata"]["uid"])
    assert same["status"]["admission"] == admitted["status"]["admission"]
    assert times(same) == times(admitted)
    others = [each for each in workloads(fleet) if each["metadata"]["uid"] != same["metadata"]["uid"]]
    assert [each["status"].get("admission") for each in others] == [None]
    assert fleet.get("rival")["status"]["phase"] == "Queued"
    said: Counter[str] = Counter()
    for event in fleet.api.items(f"/api/v1/namespaces/{fleet.namespace}/events"):
        said[event["reason"]] += event.get("count") or 1
    assert said["Admitted"] == 1
    # Kueue adds why: EvictedDueToPreempted.
    assert not any(reason.startswith(("Evicted", "Preempted")) for reason in said), said


def make_queue(fleet: Fleet, *, chips: int, topology: str | None, toleration: Object) -> None:
    """A LocalQueue `fleet` with room for so many chips, of machines with a label and a taint of their own."""
    name = fleet.namespace
    more = {"topologyName": topology} if topology else {}
    labels = {"flavor": name}
    create(fleet.plane, "ResourceFlavor", name, {"nodeLabels": labels, "tolerations": [toleration], **more})
    quotas = [{"name": n, "nominalQuota": a} for n, a in (QUOTAS | {"google.com/tpu": chips}).items()]
    groups = [{"coveredResources": list(QUOTAS), "flavors": [{"name": name, "resources": quotas}]}]
    create(fleet.plane, "ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups})
    create(fleet.plane, "LocalQueue", "fleet", {"clusterQueue": name}, namespace=name)


def workloads(fleet: Fleet) -> list[Object]:
    return list(fleet.api.items(f"/apis/{API_VERSION}/namespaces/{fleet.namespace}/workloads"))


def times(workload: Object) -> dict[str, tuple[str, str]]:
    """Since when it has its quota, and is admitted."""
    conditions = {each["type"]: each for each in workload["status"]["conditions"]}
    return {kind: (conditions[kind]["status"], conditions[kind]["lastTransitionTime"]) for kind in KEPT}
