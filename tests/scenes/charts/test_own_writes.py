"""Whoever has the operator's token writes what the operator writes, and nothing else: asked of a real API server."""

import copy
import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from tests.charts.rendered import NAMESPACE
from tests.harness.operator_process import USER, bind_own_writes
from tests.operator.manifests import manifest
from tests.resource.jobset.test_golden import NAMES, golden
from tools.localcluster.api import Api, ApiError, Object
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane

HERE = "own-writes"
NAMESPACE_OF = {"apiVersion": "v1", "kind": "Namespace"}
OWNER = {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob", "name": "mine", "uid": "u-1", "controller": True}
MINE = {"ownerReferences": [OWNER]}
JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{HERE}/jobsets"
JOBS = f"/apis/batch/v1/namespaces/{HERE}/jobs"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{HERE}/networkpolicies"
SECRETS = f"/api/v1/namespaces/{HERE}/secrets"
EVENTS = f"/api/v1/namespaces/{HERE}/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


def jobset(*, pod: Mapping[str, Any] = {}, container: Mapping[str, Any] = {}, **metadata: Any) -> Object:
    """What the operator makes of the quickstart, changed."""
    made: Object = json.loads(json.dumps(golden("quickstart")).replace("quickstart", "mine"))
    made["metadata"] = {"name": "mine", **MINE, **metadata}
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec.update(pod)
    spec["containers"][0].update(container)
    return made


def security(**fields: Any) -> Object:
    return {"securityContext": {"allowPrivilegeEscalation": False, **fields}}


def volume(**source: Any) -> Object:
    return {"volumes": [{"name": "v", **source}]}


MADE_ALIKE = "writes only objects that a TpuTrainingJob controls"
REFUSED_PODS: dict[str, Object] = {
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": True},
    "hostNetwork": {"hostNetwork": True},
    "a token": {"automountServiceAccountToken": True},
    "a token by default": {"automountServiceAccountToken": None},
    "hostPath": volume(hostPath={"path": "/"}),
    "a projected token": volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}),
    "another driver": volume(csi={"driver": "node.example"}),
    "nfs": volume(nfs={"server": "s", "path": "/"}),
}
REFUSED_CONTAINERS: dict[str, Object] = {
    "privileged": security(privileged=True, allowPrivilegeEscalation=True),
    "escalation": security(allowPrivilegeEscalation=True),
    "escalation by default": {"securityContext": {}},
    "a capability": security(capabilities={"add": ["SYS_ADMIN"]}),
    "hostPort": {"ports": [{"containerPort": 80, "hostPort": 80}]},
}
CREATED: dict[str, tuple[str, Object, str]] = {
    "a JobSet of nobody": (JOBSETS, jobset(ownerReferences=[]), MADE_ALIKE),
    "a JobSet of a Deployment": (JOBSETS, jobset(ownerReferences=[{**OWNER, "kind": "Deployment"}]), MADE_ALIKE),
    "a JobSet that is owned, not controlled": (
        JOBSETS,
        jobset(ownerReferences=[{**OWNER, "controller": False}]),
        MADE_ALIKE,
    ),
    "a JobSet of another name": (JOBSETS, jobset(name="other"), MADE_ALIKE),
    **{f"a pod with {what}": (JOBSETS, jobset(pod=pod), "did not allow") for what, pod in REFUSED_PODS.items()},
    **{
        f"a container with {what}": (JOBSETS, jobset(container=container), "did not allow")
        for what, container in REFUSED_CONTAINERS.items()
    },
    "a NetworkPolicy of nobody": (POLICIES, {"metadata": {"name": "mine-tpujob"}, "spec": {}}, MADE_ALIKE),
    "a NetworkPolicy of another name": (POLICIES, {"metadata": {"name": "all", **MINE}, "spec": {}}, MADE_ALIKE),
    "a Secret of nobody": (SECRETS, {"metadata": {"name": "tpujob-u-1"}, "immutable": True}, MADE_ALIKE),
    "a Secret that can be changed": (SECRETS, {"metadata": {"name": "tpujob-u-1", **MINE}}, "immutable Secrets"),
    "a Secret that Kubernetes fills with a token": (
        SECRETS,
        {
            "metadata": {
                "name": "tpujob-u-1",
                **MINE,
                "annotations": {"kubernetes.io/service-account.name": "default"},
            },
            "immutable": True,
            "type": "kubernetes.io/service-account-token",
        },
        "immutable Secrets of type Opaque",
    ),
    "an Event about a pod": (
        EVENTS,
        {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": HERE},
            "reason": "R",
            "message": "m",
            "type": "Normal",
        },
        "Events about TpuTrainingJobs alone",
    ),
    "a Lease elsewhere": (LEASES.format(HERE), {"metadata": {"name": "tpujob-operator"}}, "no other"),
    "another Lease": (LEASES.format(NAMESPACE), {"metadata": {"name": "kube-scheduler"}}, "no other"),
}
"""By what it is: where it would be created, the object, and words of the refusal."""


@pytest.fixture(scope="module")
def admin(control_plane: ControlPlane) -> Iterator[Api]:
    """The API with the chart's policy for an operator to whom RBAC allows everything."""
    api = control_plane.api
    # The latter may be there, and nothing waits for its service account.
    for namespace in (HERE, NAMESPACE):
        control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(NAMESPACE_OF | {"metadata": {"name": namespace}}))
    control_plane.kubectl("create", "clusterrolebinding", HERE, "--clusterrole=cluster-admin", f"--user={USER}")
    bind_own_writes(control_plane)
    operator = api.acting_as(USER)
    wait_for("the policy to be in force", lambda: refusal(operator, JOBSETS, jobset(name="other")) or None)
    yield api
    control_plane.kubectl("delete", "clusterrolebinding", HERE)


@pytest.fixture(scope="module")
def operator(admin: Api) -> Api:
    return admin.acting_as(USER)


def refusal(api: Api, path: str, body: Object) -> str:
    """What the API server says to a creation; empty where it accepts it."""
    try:
        api.create(f"{path}?dryRun=All", body)
    except ApiError as error:
        return str(error) if "denied request" in str(error) else f"not by the policy: {error}"
    return ""


@pytest.mark.parametrize(("path", "body", "words"), CREATED.values(), ids=CREATED)
def test_what_the_operator_never_makes_is_refused(operator: Api, path: str, body: Object, words: str):
    assert words in refusal(operator, path, body)


def test_every_golden_jobset_is_made(operator: Api):
    found = {}
    for name in NAMES:
        made = golden(name)
        metadata: Object = made["metadata"]
        metadata |= {"namespace": HERE, "ownerReferences": [{**OWNER, "name": metadata["name"]}]}
        found[name] = refusal(operator, JOBSETS, made)
    assert found == dict.fromkeys(NAMES, "")


ALLOWED: list[tuple[Object, list[Object]]] = [
    (
        {"privileged": True, "addCapabilities": ["SYS_RESOURCE"], "multislice": {"hostNetwork": True}},
        [
            jobset(container=security(privileged=True, allowPrivilegeEscalation=True)),
            jobset(container=security(capabilities={"add": ["SYS_RESOURCE"]})),
            jobset(pod={"hostNetwork": True}, container={"ports": [{"containerPort": 1, "hostPort": 1}]}),
        ],
    ),
    (
        {"multislice": {"claimTemplate": "nics"}},
        [jobset(pod={"resourceClaims": [{"name": "n", "resourceClaimTemplateName": "nics"}]})],
    ),
]
"""Values of `jobs` in the chart, and what they allow."""


def is_taken(operator: Api, body: Object) -> bool:
    return refusal(operator, JOBSETS, body) == ""


def test_what_the_chart_allows_is_allowed(control_plane: ControlPlane, operator: Api):
    try:
        for values, wanted in ALLOWED:
            assert all("did not allow" in refusal(operator, JOBSETS, each) for each in wanted)
            bind_own_writes(control_plane, {"jobs": values})
            for each in wanted:
                wait_for("the policy to allow it", partial(is_taken, operator, each))
    finally:
        bind_own_writes(control_plane)
    wait_for("the policy to refuse it again", lambda: refusal(operator, JOBSETS, ALLOWED[1][1][0]) or None)


@pytest.fixture(scope="module")
def owned(admin: Api, operator: Api) -> Object:
    """Metadata of what belongs to a job of the namespace, whose JobSet is there."""
    job = admin.create(f"/apis/tpujob.dev/v1beta1/namespaces/{HERE}/tputrainingjobs", manifest("mine", suspend=True))
    owned = {"ownerReferences": [{**OWNER, "uid": job["metadata"]["uid"]}]}
    mine = jobset(ownerReferences=owned["ownerReferences"])
    mine["spec"]["suspend"] = True
    operator.create(JOBSETS, mine)
    return owned


def test_job_of_a_jobset_is_resized_and_nothing_else(admin: Api, operator: Api, owned: Object):
    def of_jobset() -> Object | None:
        return next((job for job in admin.items(JOBS) if job["metadata"].get("ownerReferences")), None)

    mine = wait_for("the Job of the JobSet", of_jobset)
    template = {"spec": mine["spec"]["template"]["spec"]}
    theirs = {"suspend": True, "completionMode": "Indexed", "parallelism": 1, "completions": 1, "template": template}
    admin.create(JOBS, {"metadata": {"name": "theirs"}, "spec": theirs})
    size = {"spec": {"parallelism": 3, "completions": 3}}
    path = f"{JOBS}/{mine['metadata']['name']}"
    assert operator.patch(f"{path}?dryRun=All", size)["spec"]["parallelism"] == 3
    for spec in ({"suspend": False}, {"backoffLimit": 9}, {"activeDeadlineSeconds": 1}):
        with pytest.raises(ApiError, match="and nothing else"):
            operator.patch(path, {"spec": spec})
    with pytest.raises(ApiError, match="and nothing else"):
        operator.patch(path, {"metadata": {"ownerReferences": []}})
    for change in (size, {"spec": {"suspend": False}}):
        with pytest.raises(ApiError, match="denied request"):
            operator.patch(f"{JOBS}/theirs", change)


def test_network_policy_of_another_is_not_opened(admin: Api, operator: Api, owned: Object):
    closed = {"podSelector": {}, "policyTypes": ["Ingress"]}
    admin.create(POLICIES, {"metadata": {"name": "theirs"}, "spec": closed})
    operator.create(POLICIES, {"metadata": {"name": "mine-tpujob", **owned}, "spec": closed})
    opened: Object = {"spec": {"ingress": [{}]}}
    operator.patch(f"{POLICIES}/mine-tpujob", opened)
    with pytest.raises(ApiError, match=MADE_ALIKE):
        operator.patch(f"{POLICIES}/theirs", opened)


def test_lease_of_its_own_is_held(admin: Api, operator: Api):
    leases = LEASES.format(NAMESPACE)
    assert refusal(operator, leases, {"metadata": {"name": "tpujob-operator"}}) == ""
    admin.create(leases, {"metadata": {"name": "another"}})
    with pytest.raises(ApiError, match="no other"):
        operator.patch(f"{leases}/another", {"spec": {"holderIdentity": "me"}})
    admin.delete(f"{leases}/another")


def test_jobset_is_suspended_and_deleted_and_not_otherwise_changed(admin: Api, operator: Api, owned: Object):
    """Its own, that is; another's is neither."""
    theirs = jobset(name="theirs", ownerReferences=[])
    theirs["spec"]["suspend"] = True
    admin.create(JOBSETS, theirs)
    changed = copy.deepcopy(theirs["spec"]["replicatedJobs"])
    changed[0]["replicas"] = 2
    mine, other = f"{JOBSETS}/mine", f"{JOBSETS}/theirs"
    with pytest.raises(ApiError, match="and nothing else"):
        operator.patch(mine, {"spec": {"replicatedJobs": changed}})
    with pytest.raises(ApiError, match=MADE_ALIKE):
        operator.patch(mine, {"metadata": {"ownerReferences": []}})
    with pytest.raises(ApiError, match=MADE_ALIKE):
        operator.patch(other, {"spec": {"suspend": False}})
    with pytest.raises(ApiError, match=MADE_ALIKE):
        operator.delete(other)
    operator.patch(mine, {"spec": {"suspend": False}})
    operator.delete(mine)
    admin.delete(other)


def test_others_are_not_hindered(admin: Api):
    found = {what: refusal(admin, path, body) for what, (path, body, _) in CREATED.items()}
    assert [what for what, words in found.items() if "denied request" in words] == []
