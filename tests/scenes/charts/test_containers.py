"""Every container that the chart starts has no rights, says what it needs, and is a fixed version."""

import re
from collections.abc import Iterator

import pytest

from tests.charts.rendered import NAMESPACE, Object, of_kind, render
from tpujob_operator.controller.leader_election import LEASE

VALUES = [
    pytest.param({}, id="defaults"),
    pytest.param({"replicas": 1}, id="one replica"),
    pytest.param({"watchNamespaces": ["a"]}, id="one namespace"),
    pytest.param({"image": {"registry": "r.example", "digest": f"sha256:{'a' * 64}"}}, id="digest"),
    pytest.param({"jobs": {"privileged": True}}, id="privileged jobs"),
]


def pods(values: Object) -> Iterator[Object]:
    """Every pod that is rendered, as metadata and spec."""
    for each in render(values):
        if each["kind"] == "Pod":
            yield each
        elif "template" in each.get("spec", {}):
            yield each["spec"]["template"]


def containers(values: Object) -> Iterator[tuple[Object, Object]]:
    """Every container, with its pod's spec."""
    for pod in pods(values):
        for kind in ("initContainers", "containers", "ephemeralContainers"):
            for container in pod["spec"].get(kind, []):
                yield container, pod["spec"]


@pytest.mark.parametrize("values", VALUES)
def test_containers_have_no_rights(values):
    names = [container["name"] for container, _ in containers(values)]
    assert names == ["operator", "test"]
    for container, pod in containers(values):
        together = {**pod["securityContext"], **container["securityContext"]}
        assert together["runAsNonRoot"] is True
        assert together["runAsUser"] >= 10000
        assert together["runAsGroup"] >= 10000
        assert together["seccompProfile"] == {"type": "RuntimeDefault"}
        assert together["allowPrivilegeEscalation"] is False
        assert together["readOnlyRootFilesystem"] is True
        assert together["capabilities"] == {"drop": ["ALL"]}
        assert not together.get("privileged")
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        kinds = {kind for volume in pod.get("volumes", []) for kind in volume if kind != "name"}
        assert kinds <= {"emptyDir"}


@pytest.mark.parametrize("values", VALUES)
def test_containers_say_what_they_need(values):
    for container, _ in containers(values):
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        # No limit of CPU: it would slow down what has nobody to share with.
        assert container["resources"]["limits"].keys() == {"memory"}
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
        for volume in container.get("volumeMounts", []):
            assert volume["mountPath"] == "/tmp"


@pytest.mark.parametrize("values", VALUES)
def test_containers_are_fixed_versions(values):
    for container, _ in containers(values):
        assert re.search(r"(:[0-9][\w.-]*|@sha256:[0-9a-f]{64})$", container["image"])
        assert container["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize("values", VALUES)
def test_containers_that_stay_are_probed(values):
    for container, pod in containers(values):
        stays = pod.get("restartPolicy", "Always") == "Always"
        assert ({"livenessProbe", "readinessProbe", "startupProbe"} <= container.keys()) == stays


@pytest.mark.parametrize("values", VALUES)
def test_pods_ask_for_the_token_that_the_account_does_not_give(values):
    assert {pod["spec"]["serviceAccountName"] for pod in pods(values)} == {"tpujob-operator"}
    assert [pod["spec"]["automountServiceAccountToken"] for pod in pods(values)] == [True, True]
    assert [account["automountServiceAccountToken"] for account in of_kind("ServiceAccount", values)] == [False]


def test_pod_of_helm_test_is_no_operator():
    [test] = [pod for pod in pods({}) if pod["metadata"].get("name")]
    assert test["metadata"]["annotations"]["helm.sh/hook"] == "test"
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"):
        [found] = of_kind(kind)
        spec = found["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        chosen = selector.get("matchLabels", selector)
        assert not chosen.items() <= test["metadata"]["labels"].items(), kind


def test_helm_test_reads_the_lease_of_the_operators():
    [test] = of_kind("Pod")
    [container] = test["spec"]["containers"]
    assert f"/leases/{LEASE}" in container["command"][2]
    assert container["command"][3] == NAMESPACE
    compile(container["command"][2], "helm test", "exec")
