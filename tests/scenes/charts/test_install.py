"""A real API server takes all that the chart renders, and the operator's pod fits into a restricted namespace."""

import re
import shutil
from pathlib import Path

import pytest

from tests.charts.rendered import CHART, NAMESPACE, RELEASE, pod_template, render_text
from tools.localcluster.api import ApiError
from tools.localcluster.control_plane import ControlPlane

pytestmark = pytest.mark.control_plane

DEFINITION = "tputrainingjobs.tpujob.dev"


@pytest.mark.parametrize("restrict", [False, True], ids=["all namespaces", "one namespace"])
def test_api_server_accepts_every_object(control_plane: ControlPlane, namespace: str, restrict: bool):
    values = {"watchNamespaces": [namespace]} if restrict else {}
    # Helm makes it before the pod of `helm test`, whose account the API server looks up.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": RELEASE}}
    control_plane.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    # The objects name the release's namespace; for this test that is a fresh one.
    manifest = render_text(values).replace(f'namespace: "{NAMESPACE}"', f'namespace: "{namespace}"')
    accepted = control_plane.kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "--validate=strict",
        "-f",
        "-",
        stdin=manifest,
    )
    assert accepted.count("serverside-applied") == manifest.count("\nkind: ")


def test_pod_fits_into_a_restricted_namespace(control_plane: ControlPlane, namespace: str):
    api = control_plane.api
    api.patch(
        f"/api/v1/namespaces/{namespace}",
        {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
    )
    spec = {**pod_template()["spec"], "serviceAccountName": "default"}
    pod = {"metadata": {"name": "operator"}, "spec": spec}
    api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    # That the namespace refuses what is less than that.
    spec["securityContext"].pop("runAsNonRoot")
    with pytest.raises(ApiError, match="runAsNonRoot"):
        api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)


def test_notes_tell_what_is_served_and_what_is_missing(control_plane: ControlPlane, namespace: str):
    # Whatever other tests have put there of the same names.
    options = [
        "--dry-run=server",
        "--take-ownership",
        "--set",
        "image.preloaded=true",
        "--set",
        "watchNamespaces={a,b}",
        "--set",
        "crds.enabled=false",
    ]
    notes = control_plane.run_tool("helm", "install", RELEASE, CHART, "--namespace", namespace, *options)
    assert "The operator serves TpuTrainingJobs in a, b." in notes
    assert len(re.findall(r"^  kubectl ", notes, re.MULTILINE)) == 3
    assert "images are tpujob-operator:" in notes
    ways = [notes.index(way) for way in ("image.registry", "make images push", "tpujob bundle")]
    assert ways == sorted(ways)
    assert "crds.enabled is off" in notes
    assert "JobSet is not installed" not in notes


def test_upgrade_updates_the_definition_and_uninstall_keeps_it(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
):
    definition = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION}"
    job = {
        "apiVersion": "tpujob.dev/v1beta1",
        "kind": "TpuTrainingJob",
        "metadata": {"name": "kept"},
        "spec": {"accelerator": "cpu:1x1", "image": "i", "command": ["c"]},
    }
    jobs = f"/apis/tpujob.dev/v1beta1/namespaces/{namespace}/tputrainingjobs"
    uid = control_plane.api.create(jobs, job)["metadata"]["uid"]
    newer = tmp_path / "chart"
    shutil.copytree(CHART, newer)
    file = newer / "crd" / "tputrainingjobs.yaml"
    file.write_text(file.read_text().replace("name: Accelerator\n", "name: Changed\n", 1))

    # The definition is there already, without Helm's marks, as after `crds.enabled: false`.
    for command, chart in (("install", CHART), ("upgrade", newer), ("upgrade", CHART)):
        control_plane.run_tool(
            "helm",
            command,
            "upgraded",
            chart,
            f"--namespace={namespace}",
            "--take-ownership",
            "--wait=false",
            "--set=image.preloaded=true",
        )
        columns = control_plane.api.get(definition)["spec"]["versions"][0]["additionalPrinterColumns"]
        assert columns[0]["name"] == ("Changed" if chart is newer else "Accelerator")
    control_plane.run_tool("helm", "uninstall", "upgraded", f"--namespace={namespace}", "--wait=false")

    assert "deletionTimestamp" not in control_plane.api.get(definition)["metadata"]
    assert control_plane.api.get(f"{jobs}/kept")["metadata"]["uid"] == uid
    with pytest.raises(ApiError, match="404"):
        control_plane.api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/upgraded-tpujob-operator")


REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
NEVER = [("", "secrets", "get"), ("", "secrets", "list"), ("", "pods", "create"), ("", "pods/exec", "create")]
NEVER += [("rbac.authorization.k8s.io", "rolebindings", "create"), ("", "serviceaccounts/token", "create")]
"""Rights (group, resource, verb) by which a stolen token would have more than the operator does."""


def test_operator_of_one_namespace_can_do_nothing_in_others(control_plane: ControlPlane, namespace: str):
    api, home, other = control_plane.api, f"{namespace}-home", f"{namespace}-other"
    for each in (home, other):
        control_plane.create_namespace(each)
    options = ["--wait=false", f"--set=watchNamespaces={{{namespace}}}", "--set=image.preloaded=true"]
    control_plane.run_tool("helm", "install", "watcher", CHART, "-n", home, "--take-ownership", *options)
    user = f"system:serviceaccount:{home}:watcher-tpujob-operator"

    def rights(where: str, asked: list[tuple[str, str, str]], name: str = "") -> set[tuple[str, str, str]]:
        """Those that its token has in a namespace, of Leases for this name; without a namespace, in all of them."""
        allowed = set()
        for group, resource, verb in asked:
            kind, _, part = resource.partition("/")
            what = {"namespace": where, "group": group, "resource": kind, "subresource": part, "verb": verb}
            if kind == "namespaces":
                what["name"] = where  # as the API server asks about one
            elif kind == "leases":
                what["name"] = name
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{home}", "system:authenticated"]
            review = api.create(REVIEWS, {"spec": {"user": user, "groups": groups, "resourceAttributes": what}})
            if review["status"]["allowed"]:
                allowed.add((group, resource, verb))
        return allowed

    rules = api.get(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/watcher-tpujob-operator-jobs")
    its = [
        (group, resource, verb)
        for rule in rules["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    lease = [("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")]
    try:
        assert rights(namespace, [*its, *lease, *NEVER]) == set(its)
        assert rights(home, [*its, *lease, *NEVER], "tpujob-operator") == set(lease)
        assert rights(home, lease, "kube-scheduler") == {("coordination.k8s.io", "leases", "create")}
        assert rights(other, [*its, *lease, *NEVER]) == set()
        assert rights("", [*its, *lease, *NEVER, ("", "nodes", "list")]) == set()
    finally:
        control_plane.run_tool("helm", "uninstall", "watcher", "-n", home, "--wait=false")
