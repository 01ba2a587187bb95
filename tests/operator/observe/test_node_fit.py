"""Which nodes pods may be put on, and how many: taints, affinity and amounts, as kube-scheduler reads them."""

from typing import Any

import pytest

from tpujob_operator.observe.free_slices import Need, domains, may_run, need_of, pods_that_fit

type Object = dict[str, Any]
TAINT: Object = {"key": "team", "value": "a", "effect": "NoSchedule"}
PLAIN: Object = {"key": "team", "effect": "NoSchedule"}


def need(hosts: int = 1, **pod: Any) -> Need:
    return Need(hosts=hosts, pod=pod, domain=None)


def node(name: str = "x", *, labels: Object | None = None, taints: tuple[Object, ...] = (), **amounts: str) -> Object:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"pods": "10", **amounts}},
    }


def asking(**requests: str) -> Object:
    return {"containers": [{"resources": {"requests": requests}}]}


@pytest.mark.parametrize(
    ("toleration", "taint", "is_tolerated"),
    [
        ({"operator": "Exists"}, TAINT, True),
        ({"operator": "Exists", "key": ""}, TAINT, True),
        ({"operator": "Exists", "key": "team"}, TAINT, True),
        ({"operator": "Exists", "key": "other"}, TAINT, False),
        ({"operator": "Exists", "effect": "NoExecute"}, TAINT, False),
        ({"operator": "Exists", "effect": ""}, TAINT, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, TAINT, True),
        ({"key": "team", "value": "a"}, TAINT, True),
        ({"key": "team", "value": "b"}, TAINT, False),
        ({"key": "team", "operator": "Equal", "value": "a"}, TAINT, True),
        ({"key": "other", "value": "a"}, TAINT, False),
        ({"key": "team"}, TAINT, False),
        ({"key": "team"}, PLAIN, True),
        ({"key": "team", "value": ""}, PLAIN, True),
        ({"key": "team", "value": "a"}, PLAIN, False),
    ],
)
def test_tolerations_are_read_as_kubernetes_does(toleration: Object, taint: Object, is_tolerated: bool) -> None:
    assert may_run(node(taints=(taint,)), need(tolerations=[toleration])) is is_tolerated


def test_every_taint_must_be_tolerated() -> None:
    other = {"key": "other", "effect": "NoSchedule"}
    assert not may_run(node(taints=(TAINT, other)), need(tolerations=[TAINT]))
    assert may_run(node(taints=(TAINT, other)), need(tolerations=[TAINT, other]))
    assert not may_run(node(taints=(TAINT,)), need())


def affinity(*terms: Object) -> Object:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def expression(operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": "pool", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("rule", "may"),
    [
        ({}, True),
        ({"nodeAffinity": {}}, True),
        ({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}, True),
        (affinity({"matchFields": []}), True),
        (affinity(expression("NotIn", "a")), False),
        (affinity(expression("NotIn", "b")), True),
        (affinity(expression("NotIn", "b", "a")), False),
        (affinity(expression("In", "a")), True),
    ],
    ids=["none", "no rule", "no terms", "no expressions", "avoided", "another one", "one of two", "wanted"],
)
def test_nodes_that_a_pod_avoids_are_left_out(rule: Object, may: bool) -> None:
    assert may_run(node(labels={"pool": "a"}), need(affinity=rule)) is may
    assert may_run(node(), need(affinity=rule))


@pytest.mark.parametrize(
    ("amounts", "used", "asked", "pods"),
    [
        pytest.param({"cpu": "1"}, [], {"cpu": "500m"}, 2, id="two"),
        pytest.param({"cpu": "1"}, [asking(cpu="300m")], {"cpu": "500m"}, 1, id="what is used counts"),
        pytest.param(
            {"cpu": "1"}, [asking(cpu="300m"), asking(cpu="300m")], {"cpu": "500m"}, 0, id="what is left is too little"
        ),
        pytest.param({"cpu": "1"}, [asking(cpu="3")], {"cpu": "500m"}, 0, id="more is used than there is"),
        pytest.param({"cpu": "4", "memory": "1Gi"}, [], {"cpu": "1", "memory": "512Mi"}, 2, id="the scarcest decides"),
        pytest.param({"cpu": "4"}, [], {"cpu": "1", "memory": "512Mi"}, 0, id="the node has none of it"),
        pytest.param({"cpu": "4"}, [], {"cpu": "1", "google.com/tpu": "0"}, 4, id="none of it is asked for"),
        pytest.param({"pods": "3"}, [{}], {}, 2, id="pods count"),
        pytest.param({"pods": "3"}, [asking(cpu="1"), {}], {}, 1, id="every pod counts"),
        pytest.param({"cpu": "half"}, [], {"cpu": "1"}, 0, id="an amount that is none"),
    ],
)
def test_pods_are_counted_that_have_room(amounts: Object, used: list[Object], asked: Object, pods: int) -> None:
    running = [{"spec": spec} for spec in used]
    assert pods_that_fit(node(**amounts), running, need(**asking(**asked))) == pods


def test_bare_objects_have_room_for_nothing() -> None:
    bare: Object = {"metadata": {"name": "x"}}
    assert may_run(bare, need())
    assert not may_run(bare, need(nodeSelector={"pool": "a"}))
    assert pods_that_fit(bare, [{}], need()) == 0
    assert pods_that_fit(bare, [], need(containers=[{}], initContainers=[{}])) == 0
    assert domains([bare], "pool") == []


def test_requests_count_before_limits() -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    assert pods_that_fit(node(cpu="2"), [], need(containers=[{"resources": resources}])) == 2


def test_nodes_are_grouped_by_a_label() -> None:
    nodes = [node(name, labels={"pool": name[0]}) for name in ("b1", "a1", "b2")]
    assert [[each["metadata"]["name"] for each in group] for group in domains(nodes, "pool")] == [["a1"], ["b1", "b2"]]


REPLICATED: Object = {"name": "w", "template": {"spec": {"parallelism": 2, "template": {"spec": {"containers": []}}}}}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"replicatedJobs": [{"name": "another"}]},
        {"replicatedJobs": [{**REPLICATED, "name": "another"}]},
        {"replicatedJobs": [{"name": "w"}]},
        {"replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": 2}}}]},
        {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": {"spec": {"containers": []}}}}}]},
    ],
    ids=["no jobs", "no host", "another job", "no template", "no pod", "no size"],
)
def test_jobset_without_hosts_needs_nothing(spec: Object) -> None:
    assert need_of({"metadata": {}, "spec": spec}) is None


def test_need_is_that_of_the_hosts() -> None:
    found = need_of({"metadata": {}, "spec": {"replicatedJobs": [{"name": "another"}, REPLICATED]}})
    assert found == Need(hosts=2, pod={"containers": []}, domain=None)
