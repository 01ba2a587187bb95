"""Nobody gets by a TpuTrainingJob what they could not have by a pod: asked of a real API server, as many people."""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import pytest

from tests.charts.rendered import NAMESPACE, RELEASE, of_kind
from tests.operator.manifests import container_manifest, manifest
from tools.localcluster.api import Api, ApiError, Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for
from tpujob_resource.models.decoding import MAX_LEVELS, MAX_SPEC_BYTES, UNREADABLE, readable

pytestmark = pytest.mark.control_plane

RBAC = "/apis/rbac.authorization.k8s.io/v1"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
HERE, THERE = "policy-here", "policy-there"

Right = tuple[list[str], list[str], list[str], list[str]]
MAY_MAKE_JOBS: Right = (["tpujob.dev"], ["tputrainingjobs"], ["create", "update", "patch", "get"], [])
MAY_MAKE_PODS: Right = ([""], ["pods"], ["create"], [])
RIGHTS: dict[str, list[Right]] = {
    "none": [MAY_MAKE_JOBS],
    "reader": [MAY_MAKE_JOBS, ([""], ["pods", "secrets", "configmaps"], ["get", "list", "watch"], [])],
    "deleter": [MAY_MAKE_JOBS, ([""], ["pods"], ["delete", "update", "patch"], [])],
    "jobsets": [MAY_MAKE_JOBS, (["jobset.x-k8s.io", "batch"], ["jobsets", "jobs"], ["create"], [])],
    "pods": [MAY_MAKE_JOBS, MAY_MAKE_PODS],
    "one secret": [MAY_MAKE_JOBS, MAY_MAKE_PODS, ([""], ["secrets"], ["get"], ["mine"])],
    "lister": [MAY_MAKE_JOBS, MAY_MAKE_PODS, ([""], ["secrets", "configmaps"], ["list", "watch"], [])],
    "one map": [MAY_MAKE_JOBS, MAY_MAKE_PODS, ([""], ["configmaps"], ["get"], ["mine"])],
    "account": [MAY_MAKE_JOBS, MAY_MAKE_PODS, ([""], ["serviceaccounts"], ["use"], ["trainer"])],
    "accounts": [MAY_MAKE_JOBS, MAY_MAKE_PODS, ([""], ["serviceaccounts"], ["impersonate"], [])],
    "account reader": [MAY_MAKE_JOBS, MAY_MAKE_PODS, ([""], ["serviceaccounts"], ["get", "list"], [])],
    "secrets": [MAY_MAKE_JOBS, MAY_MAKE_PODS, ([""], ["secrets", "configmaps"], ["get"], [])],
}
"""By the name of a user, who has these rights in the namespace HERE, and may make jobs THERE."""
CLUSTER_RIGHTS: dict[str, list[Right]] = {
    "priority": [(["scheduling.k8s.io"], ["priorityclasses"], ["use"], ["high"])],
    "priority reader": [(["scheduling.k8s.io"], ["priorityclasses"], ["get", "list"], [])],
}


def secret(*names: str) -> Object:
    return {
        "env": [
            {"name": f"V{number}", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}
            for number, name in enumerate(names)
        ]
    }


def config_map(*names: str) -> Object:
    return {
        "env": [
            {"name": f"V{number}", "valueFrom": {"configMapKeyRef": {"name": name, "key": "k"}}}
            for number, name in enumerate(names)
        ]
    }


def pull(*names: str) -> Object:
    return {"imagePullSecrets": [{"name": name} for name in names]}


def volume(kind: str, name: str) -> Object:
    return {"volumes": [{"name": "v", "mountPath": "/data", kind: name}]}


def arguments(value: Any) -> Object:
    """A trainer with this value in a free-form field."""
    model = {"custom": "a:B", "arguments": {"a": value}}
    trainer = {"model": model, "data": {"path": "gs://bucket/x", "tokenizer": "bytes"}, "steps": 10}
    return {"trainer": trainer, "image": None, "command": None}


def nested(levels: int, value: Any, around: Callable[[Any], Any]) -> Any:
    for _ in range(levels):
        value = around(value)
    return value


AROUND: dict[str, Callable[[Any], Any]] = {
    "lists": lambda value: [0, value],
    "mappings": lambda value: {"k": "{", "}": value, "z": 1},
}
"""Ways to put a value one level deeper."""
ABOVE = 3
"""Levels above that value: `trainer`, `model` and `arguments`."""
LARGE: dict[str, Object] = {
    "a free-form field": arguments("z" * MAX_SPEC_BYTES),
    "many values": arguments([[[]]] * 30_000),
    "annotations": {"podAnnotations": {f"a{number}": "z" * 2048 for number in range(32)}},
}
ACCOUNT: Object = {"serviceAccountName": "trainer"}
WORKERS: Object = {"workers": 4, "accelerator": "cpu:1x4"}
PODS = "you need the right to create pods in namespace policy-here"

REFUSED: list[tuple[str, Object, str]] = [
    *(
        (user, spec, PODS)
        for user in ("none", "reader", "deleter", "jobsets", "edit there")
        for spec in (
            {},
            {"suspend": True},
            {"workers": 4, "accelerator": "cpu:1x4"},
            {"queue": "q"},
            {"accelerator": "cpu:1x1"},
        )
    ),
    ("reader", secret("mine"), PODS),
    ("reader", ACCOUNT, PODS),
    ("pods", secret("mine"), "you need the right to get secrets/mine"),
    ("pods", pull("registry"), "you need the right to get secrets/registry"),
    ("pods", config_map("mine"), "you need the right to get configmaps/mine"),
    ("pods", volume("secret", "mine"), "you need the right to get secrets/mine"),
    ("pods", volume("configMap", "mine"), "you need the right to get configmaps/mine"),
    ("one secret", {**secret("mine"), **volume("secret", "yours")}, "you need the right to get secrets/yours"),
    ("pods", ACCOUNT, "impersonate or use serviceaccounts/trainer"),
    ("pods", {"serviceAccountName": "tpujob-operator"}, "impersonate or use serviceaccounts/tpujob-operator"),
    ("pods", {"priorityClassName": "high"}, "you need the right to use priorityclasses/high"),
    ("pods", {"priorityClassName": "low"}, "use priorityclasses/low"),
    ("edit", {"priorityClassName": "high"}, "use priorityclasses/high"),
    ("priority", {"priorityClassName": "low"}, "use priorityclasses/low"),
    ("priority reader", {"priorityClassName": "high"}, "use priorityclasses/high"),
    ("one secret", secret("yours"), "you need the right to get secrets/yours"),
    ("one secret", secret("mine", "yours"), "you need the right to get secrets/yours"),
    ("one secret", secret(*["mine"] * 11, "yours"), "you need the right to get secrets/yours"),
    ("one secret", secret(*["mine"] * 13), "at most 12 references to Secrets"),
    ("one secret", {**secret("mine"), **pull("registry")}, "you need the right to get secrets/registry"),
    ("one secret", config_map("mine"), "you need the right to get configmaps/mine"),
    ("one secret", ACCOUNT, "impersonate or use serviceaccounts/trainer"),
    ("one map", config_map("yours"), "you need the right to get configmaps/yours"),
    ("one map", config_map(*["mine"] * 5), "at most 4 references to ConfigMaps"),
    ("one map", secret("mine"), "you need the right to get secrets/mine"),
    ("lister", secret("mine"), "you need the right to get secrets/mine"),
    ("lister", config_map("mine"), "you need the right to get configmaps/mine"),
    ("account", {"serviceAccountName": "admin"}, "impersonate or use serviceaccounts/admin"),
    ("account reader", ACCOUNT, "impersonate or use serviceaccounts/trainer"),
    ("secrets", ACCOUNT, "impersonate or use serviceaccounts/trainer"),
]
ALLOWED: list[tuple[str, Object]] = [
    ("pods", {}),
    ("pods", {"serviceAccountName": "default"}),
    ("one secret", secret("mine")),
    ("one secret", secret(*["mine"] * 12)),
    ("one secret", pull("mine")),
    ("one map", config_map(*["mine"] * 4)),
    ("one secret", volume("secret", "mine")),
    ("one map", volume("configMap", "mine")),
    ("account", ACCOUNT),
    ("accounts", ACCOUNT),
    ("secrets", {**secret(*["a", "b"] * 20), **pull("c")}),
    ("secrets", config_map(*["a", "b"] * 20)),
    ("priority", {"priorityClassName": "high"}),
    ("edit", {**secret("any"), **pull("c"), **ACCOUNT}),
]


@pytest.fixture(scope="module")
def policed(control_plane: ControlPlane) -> Iterator[Api]:
    """The API with the chart's policy, two namespaces and everybody's rights."""
    api = control_plane.api
    for namespace in (HERE, THERE):
        control_plane.create_namespace(namespace)
    for user, rights in {**RIGHTS, "edit": [MAY_MAKE_JOBS], "edit there": [MAY_MAKE_JOBS]}.items():
        grant(api, user, rights, HERE)
        grant(api, user, [MAY_MAKE_JOBS], THERE)
    for user, rights in CLUSTER_RIGHTS.items():
        grant(api, user, [MAY_MAKE_JOBS, MAY_MAKE_PODS], HERE)
        grant(api, user, rights, None)
    bind(api, "edit", "ClusterRole", "edit", HERE)
    bind(api, "edit there", "ClusterRole", "edit", THERE)
    [policy] = named(of_kind("ValidatingAdmissionPolicy"))
    [binding] = named(of_kind("ValidatingAdmissionPolicyBinding"))
    api.create(f"{POLICIES}/validatingadmissionpolicies", policy)
    api.create(f"{POLICIES}/validatingadmissionpolicybindings", binding)
    wait_for("the policy to be in force", lambda: refusal(api, "none", {}) or None)
    yield api
    api.delete(f"{POLICIES}/validatingadmissionpolicybindings/{binding['metadata']['name']}")
    api.delete(f"{POLICIES}/validatingadmissionpolicies/{policy['metadata']['name']}")
    for namespace in (HERE, THERE):
        api.delete(f"/api/v1/namespaces/{namespace}")


def named(objects: list[Object]) -> list[Object]:
    """Those of the policy on TpuTrainingJobs."""
    return [found for found in objects if found["metadata"]["name"] == RELEASE]


def grant(api: Api, user: str, rights: list[Right], namespace: str | None) -> None:
    """A role of this user's own, and its binding."""
    name = user.replace(" ", "-")
    rules = [
        {"apiGroups": groups, "resources": resources, "verbs": verbs} | ({"resourceNames": names} if names else {})
        for groups, resources, verbs, names in rights
    ]
    kind, where = ("Role", f"namespaces/{namespace}/roles") if namespace else ("ClusterRole", "clusterroles")
    api.create(f"{RBAC}/{where}", {"metadata": {"name": f"policy-{name}"}, "rules": rules})
    bind(api, user, kind, f"policy-{name}", namespace)


def bind(api: Api, user: str, kind: str, role: str, namespace: str | None) -> None:
    where = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    body = {
        "metadata": {"name": f"policy-{user.replace(' ', '-')}-{role}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    api.create(f"{RBAC}/{where}", body)


def job(spec: Object) -> Object:
    return container_manifest(**spec) if "workers" in spec else manifest(**spec)


def jobs_in(namespace: str) -> str:
    return f"/apis/tpujob.dev/v1beta1/namespaces/{namespace}/tputrainingjobs"


def refusal(api: Api, user: str, spec: Object, namespace: str = HERE) -> str:
    """What the API server says to this user's job; empty where it takes it."""
    try:
        api.acting_as(user).create(f"{jobs_in(namespace)}?dryRun=All&fieldValidation=Strict", job(spec))
    except ApiError as error:
        return str(error) if error.status == HTTPStatus.FORBIDDEN else f"not by the policy: {error}"
    return ""


def name_of(value: Any) -> str:
    return str(value)[:60]


@pytest.mark.parametrize(("user", "spec", "words"), REFUSED, ids=name_of)
def test_hostile_user_is_refused(policed: Api, user: str, spec: Object, words: str):
    assert words in refusal(policed, user, spec)


@pytest.mark.parametrize(("user", "spec"), ALLOWED, ids=name_of)
def test_user_with_the_rights_is_not_hindered(policed: Api, user: str, spec: Object):
    assert refusal(policed, user, spec) == ""


def test_there_are_forty_refusals():
    assert len(REFUSED) >= 40


def test_rights_of_another_namespace_do_not_count(policed: Api):
    assert refusal(policed, "edit there", {}, THERE) == ""
    assert "create pods in namespace policy-here" in refusal(policed, "edit there", {}, HERE)


def test_spec_of_another_is_not_changed_into_more(policed: Api):
    mine = {**manifest("mine", suspend=True)}
    policed.acting_as("pods").create(jobs_in(HERE), mine)
    path = f"{jobs_in(HERE)}/mine"
    for user, change, words in (
        ("none", {"spec": {"suspend": False}}, PODS),
        ("pods", {"spec": ACCOUNT}, "serviceaccounts/trainer"),
        ("pods", {"spec": secret("yours")}, "secrets/yours"),
    ):
        with pytest.raises(ApiError, match=words):
            policed.acting_as(user).patch(path, change)
    # What makes no pods needs no right to make them.
    policed.acting_as("none").patch(path, {"metadata": {"labels": {"team": "a"}}})
    policed.acting_as("pods").patch(path, {"spec": {"suspend": False}})


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_spec_has_no_more_levels_than_the_operator_reads(policed: Api, around: Callable[[Any], Any]):
    deepest, deeper = (arguments(nested(MAX_LEVELS - ABOVE + more, 1, around)) for more in (0, 1))
    assert (refusal(policed, "pods", deepest), UNREADABLE in readable(job(deepest))) == ("", False)
    assert "spec: has more than 32 lists and mappings within each other" in refusal(policed, "pods", deeper)
    assert UNREADABLE in readable(job(deeper))


@pytest.mark.parametrize("spec", LARGE.values(), ids=LARGE)
def test_spec_has_no_more_characters_than_the_operator_reads_bytes(policed: Api, spec: Object):
    assert f"characters; at most {MAX_SPEC_BYTES}, as every pod" in refusal(policed, "pods", spec)


def test_large_spec_within_the_bound_is_allowed(policed: Api):
    assert refusal(policed, "pods", arguments("z" * (MAX_SPEC_BYTES - 1000))) == ""


def test_quota_of_jobs_is_made_in_each_named_namespace():
    quotas = of_kind("ResourceQuota", {"jobs": {"quotas": {"a": 200, "b": 0}}})
    found = {quota["metadata"]["namespace"]: quota["spec"]["hard"] for quota in quotas}
    counted = "count/tputrainingjobs.tpujob.dev"
    assert found == {"a": {counted: "200"}, "b": {counted: "0"}}
    assert of_kind("ResourceQuota") == []


def test_policy_is_bound_to_the_watched_namespaces_alone():
    [binding] = named(of_kind("ValidatingAdmissionPolicyBinding", {"watchNamespaces": ["a", "b"]}))
    [expression] = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert expression == {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["a", "b"]}
    assert NAMESPACE not in expression["values"]
