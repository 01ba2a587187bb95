"""What is installed: every switch, the rights, the security profile, the seams to the operator."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.charts.rendered import (
    CHART,
    NAMESPACE,
    RELEASE,
    RefusedValues,
    of_kind,
    pod_template,
    render,
    render_text,
    run_helm,
)
from tests.charts.test_dockerfile import USER
from tests.harness.operator_process import NAME, rules
from tools.localcluster import binaries
from tpujob_contract import kubernetes_names
from tpujob_contract.ports import REPORT
from tpujob_operator.base.settings import Settings
from tpujob_resource.crd.build import custom_resource_definition

JOBSET = Path(__file__).parents[2] / "resource" / "jobset" / "golden" / "queued.jobset.yaml"
MONITORED = {"metrics": {"podMonitor": {"enabled": True}}}


def kinds(values) -> set[str]:
    return {document["kind"] for document in render(values)}


DEFAULT_KINDS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Deployment",
    "NetworkPolicy",
    "Pod",  # of `helm test`
    "PodDisruptionBudget",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}

ADMISSION = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
RIGHTS = {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


@pytest.mark.parametrize(
    ("values", "without", "plus"),
    [
        ({}, set(), set()),
        ({"crds": {"enabled": False}}, {"CustomResourceDefinition"}, set()),
        ({"rbac": {"create": False, "aggregateToUserRoles": False}}, RIGHTS, set()),
        ({"serviceAccount": {"create": False, "name": "mine"}}, {"ServiceAccount"}, set()),
        ({"metrics": {"service": False}}, {"Service"}, set()),
        ({"metrics": {"serviceMonitor": {"enabled": True}}}, set(), {"ServiceMonitor"}),
        (MONITORED, set(), {"PodMonitor"}),
        ({"metrics": {"prometheusRule": {"enabled": True}}}, set(), {"PrometheusRule"}),
        ({"metrics": {"dashboards": {"enabled": True}}}, set(), {"ConfigMap"}),
        ({"networkPolicy": {"enabled": False}}, {"NetworkPolicy"}, set()),
        ({"replicas": 1}, {"PodDisruptionBudget"}, set()),
        ({"admissionPolicy": {"enabled": False}}, ADMISSION, set()),
        ({"watchNamespaces": ["a", "b"]}, {"ClusterRoleBinding"}, set()),
        (
            {"watchNamespaces": ["a"], "rbac": {"create": False, "aggregateToUserRoles": False}},
            RIGHTS,
            set(),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_switch_decides_what_is_installed(values, without, plus):
    assert kinds(values) == DEFAULT_KINDS - without | plus


def test_chart_lints():
    run_helm("lint", "--strict", CHART, "--set=image.preloaded=true")


def test_lint_of_the_plain_chart_prints_no_failure():
    """Helm prints there what a template refuses as [INFO] Fail."""
    found = subprocess.run([binaries.path("helm"), "lint", CHART], capture_output=True, text=True, check=True)
    assert "Fail" not in found.stdout + found.stderr


def test_rendered_yaml_lints():
    config = "{extends: default, rules: {line-length: disable, indentation: {indent-sequences: whatever}}}"
    result = subprocess.run(
        [Path(sys.executable).with_name("yamllint"), "--strict", "-d", config, "-"],
        input=render_text({**MONITORED, "watchNamespaces": ["a", "b"], "commonLabels": {"team": "a"}}),
        capture_output=True,
        text=True,
    )
    assert result.stdout == ""
    assert result.returncode == 0


def test_pod_runs_as_the_user_of_the_image():
    assert pod_template()["spec"]["securityContext"]["runAsUser"] == USER


def granted(role) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


OF_THE_CLUSTER = ("customresourcedefinitions", "nodes", "clusterqueues", "priorityclasses", "workloadpriorityclasses")
"""Resources that an operator for some namespaces does not read."""


def test_rights_stay_in_the_watched_namespaces():
    values = {"watchNamespaces": ["a", "b"], "rbac": {"aggregateToUserRoles": False}}
    assert not kinds(values) & {"ClusterRole", "ClusterRoleBinding"}
    roles = [role for role in of_kind("Role", values) if role["metadata"]["name"] != NAME]
    assert [role["metadata"]["namespace"] for role in roles] == ["a", "b"]
    # They have no namespace; the operator is told not to look for them.
    for role in roles:
        assert granted(role) == {right for right in granted({"rules": rules()}) if right[1] not in OF_THE_CLUSTER}
        named = [rule["resourceNames"] for rule in role["rules"] if rule["resources"] == ["namespaces"]]
        assert named == [[role["metadata"]["namespace"]]], "its own alone"
    for binding in of_kind("RoleBinding", values):
        assert binding["roleRef"]["kind"] == "Role"
        assert binding["roleRef"]["name"] == binding["metadata"]["name"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]


def test_without_policies_for_jobs_there_is_no_right_to_make_them():
    [role] = [r for r in of_kind("ClusterRole", {"networkPolicy": {"jobs": False}}) if r["metadata"]["name"] == NAME]
    assert granted({"rules": rules()}) - granted(role) == {
        ("networking.k8s.io", "networkpolicies", verb) for verb in ("get", "create", "patch")
    }


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["a"]}], ids=str)
def test_leases_are_the_operator_s_own_namespace_s_alone(values):
    [role] = [role for role in of_kind("Role", values) if role["metadata"]["name"] == NAME]
    assert role["metadata"]["namespace"] == NAMESPACE
    assert granted(role) == {("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")}
    others = [r for r in of_kind("Role", values) + of_kind("ClusterRole", values) if r is not role]
    assert not [right for other in others if other != role for right in granted(other) if right[1] == "leases"]


@pytest.mark.parametrize("values", [{}, {"watchNamespaces": ["a", NAMESPACE]}], ids=str)
def test_no_right_is_dangerous(values):
    rights = {right for role in of_kind("ClusterRole", values) + of_kind("Role", values) for right in granted(role)}
    assert rights
    for _, resource, verb in rights:
        assert "*" not in resource + verb
        assert resource not in ("pods/exec", "serviceaccounts", "serviceaccounts/token")
        assert resource != "secrets" or verb == "create"
        assert verb not in ("escalate", "bind", "impersonate")
        assert resource != "pods" or verb in ("get", "list", "watch")


def test_users_of_a_namespace_get_rights_by_their_own_roles():
    by_name = {role["metadata"]["name"]: role for role in of_kind("ClusterRole")}
    edit, view = by_name[f"{NAME}-edit"], by_name[f"{NAME}-view"]
    assert {verb for *_, verb in granted(edit)} == {"create", "update", "patch", "delete", "deletecollection"}
    assert {verb for *_, verb in granted(view)} == {"get", "list", "watch"}
    for role, aggregated in ((edit, {"edit", "admin"}), (view, {"view", "edit", "admin"})):
        prefix = "rbac.authorization.k8s.io/aggregate-to-"
        assert {k.removeprefix(prefix) for k in role["metadata"]["labels"] if k.startswith(prefix)} == aggregated
        assert {group for group, *_ in granted(role)} == {"tpujob.dev"}


def environment(values) -> dict[str, str]:
    """The variables of the container, the references filled in as Kubernetes would."""
    fields = {"metadata.namespace": NAMESPACE, "metadata.name": "tpujob-operator-5d9c-x2x"}
    [container] = pod_template(values)["spec"]["containers"]
    return {
        variable["name"]: variable["value"]
        if "value" in variable
        else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        for variable in container["env"]
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, {}, id="defaults"),
        pytest.param(
            {
                "image": {"repository": "r/o", "tag": "1", "pullPolicy": "Always"},
                "trainerImage": {"repository": "r/t", "digest": f"sha256:{'0' * 64}"},
                "watchNamespaces": ["a", "b"],
                "monitoringNamespace": "prom",
                "jobs": {
                    "runAsUser": 2000000000,
                    "privileged": True,
                    "addCapabilities": ["SYS_RESOURCE", "IPC_LOCK"],
                    "spotGraceSeconds": 60,
                    "machineRequests": False,
                    "maxPods": 64,
                    "maxChips": 256,
                },
                "reportIntervalSeconds": 0.5,
                "resyncSeconds": 60,
                "logLevel": "DEBUG",
                "stalledAfterSeconds": 1200,
                "restartPauseSeconds": 20,
                "progressIntervalSeconds": 15,
                "networkPolicy": {"jobs": False},
            },
            {
                "operator_image": "r/o:1",
                "trainer_image": f"r/t@sha256:{'0' * 64}",
                "image_pull_policy": "Always",
                "watch_namespaces": ("a", "b"),
                "monitoring_namespace": "prom",
                "run_as_user": 2000000000,
                "privileged": True,
                "add_capabilities": ("SYS_RESOURCE", "IPC_LOCK"),
                "spot_grace_seconds": 60,
                "machine_requests": False,
                "max_pods": 64,
                "max_chips": 256,
                "report_interval_seconds": 0.5,
                "resync_seconds": 60.0,
                "log_level": "DEBUG",
                "stalled_after_seconds": 1200.0,
                "restart_pause_seconds": 20.0,
                "progress_interval_seconds": 15.0,
                "network_policies": False,
            },
            id="everything",
        ),
    ],
)
def test_operator_reads_its_settings_from_the_values(values, expected):
    defaults = {
        "trainer_image": "tpujob-trainer:0.1.0",
        "operator_image": "tpujob-operator:0.1.0",
        "image_pull_policy": "IfNotPresent",
        "namespace": NAMESPACE,
        "identity": "tpujob-operator-5d9c-x2x",
        "leader_election": True,
    }
    assert Settings.from_environ(environment(values)) == Settings(**{**defaults, **expected})


def test_rendered_jobs_have_the_images_of_the_chart():
    """What `tpujob render` shows, which knows no chart."""
    chosen = Settings.from_environ(environment({}))
    assert (Settings().trainer_image, Settings().operator_image) == (chosen.trainer_image, chosen.operator_image)


def test_every_setting_of_the_operator_is_set():
    assert {name.removeprefix("OPERATOR_").lower() for name in environment({})} == set(Settings.__dataclass_fields__)


def test_ports_and_probes_agree_with_the_operator():
    [container] = pod_template()["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    settings = Settings.from_environ(environment({}))
    assert ports == {"health": settings.health_port, "metrics": settings.metrics_port}
    paths = {kind: container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness", "startup")}
    assert paths == {
        "liveness": {"path": "/healthz", "port": "health"},
        "readiness": {"path": "/readyz", "port": "health"},
        "startup": {"path": "/healthz", "port": "health"},
    }


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "tpujob-operator:0.1.0"),
        ({"repository": "host:5000/a/b"}, "host:5000/a/b:0.1.0"),
        ({"tag": "v1"}, "tpujob-operator:v1"),
        ({"registry": "mirror.example:5000/tpu"}, "mirror.example:5000/tpu/tpujob-operator:0.1.0"),
        ({"registry": "r", "repository": "a/b", "digest": f"sha256:{'b' * 64}"}, f"r/a/b@sha256:{'b' * 64}"),
        ({"tag": "v1", "digest": f"sha256:{'a' * 64}"}, f"tpujob-operator@sha256:{'a' * 64}"),
    ],
    ids=str,
)
def test_image_by_tag_or_digest(image, expected):
    [container] = pod_template({"image": image})["spec"]["containers"]
    assert container["image"] == expected


@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas_are_led_by_one(replicas):
    values = {"replicas": replicas}
    [deployment] = of_kind("Deployment", values)
    assert deployment["spec"]["replicas"] == replicas
    assert environment(values)["OPERATOR_LEADER_ELECTION"] == "true"
    spread = deployment["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
    chosen = deployment["spec"]["selector"]["matchLabels"]
    topologies = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"] if replicas > 1 else []
    assert [s["topologyKey"] for s in spread] == topologies
    assert all(s["labelSelector"]["matchLabels"] == chosen for s in spread)
    affinity = deployment["spec"]["template"]["spec"].get("affinity", {})
    assert bool(affinity) == (replicas > 1)
    budgets = of_kind("PodDisruptionBudget", values)
    assert [budget["spec"]["selector"]["matchLabels"] for budget in budgets] == [chosen] * (replicas - 1)


def test_selectors_find_the_pod():
    labels = pod_template(MONITORED)["metadata"]["labels"]
    operators = [monitor for monitor in of_kind("PodMonitor", MONITORED) if monitor["metadata"]["name"] == NAME]
    selectors = [
        *(d["spec"]["selector"]["matchLabels"] for d in of_kind("Deployment", MONITORED)),
        *(d["spec"]["selector"] for d in of_kind("Service", MONITORED)),
        *(d["spec"]["selector"]["matchLabels"] for d in operators),
        *(d["spec"]["podSelector"]["matchLabels"] for d in of_kind("NetworkPolicy", MONITORED)),
    ]
    assert len(selectors) == 4
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert selector.keys() == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}


def test_labels_of_values_do_not_replace_ours():
    ours = {"app.kubernetes.io/name": "mine", "app.kubernetes.io/instance": "mine"}
    labels = pod_template({"podLabels": ours, "commonLabels": {**ours, "team": "a"}})["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "tpujob-operator"
    assert labels["app.kubernetes.io/instance"] == RELEASE
    assert labels["team"] == "a"


def test_every_object_has_the_standard_labels():
    standard = {"name", "instance", "version", "component", "part-of", "managed-by"}
    for document in render({**MONITORED, "watchNamespaces": ["a"]}):
        labels = document["metadata"]["labels"]
        assert {f"app.kubernetes.io/{label}" for label in standard} <= labels.keys(), document["kind"]
        assert all(isinstance(value, str) for value in labels.values())


def test_only_the_monitoring_namespace_reaches_the_metrics():
    [policy] = of_kind("NetworkPolicy", {"monitoringNamespace": "prom"})
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [
        {
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "prom"}}}],
            "ports": [{"port": "metrics", "protocol": "TCP"}],
        }
    ]


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("tpujob-operator", {}, "tpujob-operator"),
        ("prod", {}, "prod-tpujob-operator"),
        ("r" * 53, {}, f"{'r' * 53}-tpujob-op"),
        ("prod", {"fullnameOverride": "tpujob"}, "tpujob"),
    ],
)
def test_names_follow_the_release_and_stay_within_63_characters(release, values, name):
    [deployment] = of_kind("Deployment", values, release=release)
    assert deployment["metadata"]["name"] == name
    limited = [
        d for d in render(values, release=release) if d["kind"] not in ("ClusterRole", "CustomResourceDefinition")
    ]
    assert all(len(document["metadata"]["name"]) <= 63 for document in limited)


def test_definition_is_the_generated_one():
    [rendered] = of_kind("CustomResourceDefinition")
    generated = custom_resource_definition()
    assert rendered["spec"] == generated["spec"]
    assert rendered["metadata"]["name"] == generated["metadata"]["name"]


@pytest.mark.parametrize("keep", [True, False])
def test_definition_is_kept_at_uninstall_unless_told_otherwise(keep):
    [rendered] = of_kind("CustomResourceDefinition", {"crds": {"keep": keep}})
    annotations = rendered["metadata"].get("annotations", {})
    assert annotations == ({"helm.sh/resource-policy": "keep"} if keep else {})


def test_monitor_of_jobs_finds_their_pods_and_port():
    [monitor] = [m for m in of_kind("PodMonitor", MONITORED) if m["metadata"]["name"] == f"{NAME}-jobs"]
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    golden = YAML(typ="safe").load(JOBSET.read_text())
    pod = golden["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert monitor["spec"]["selector"] == {
        "matchExpressions": [{"key": kubernetes_names.JOB_NAME, "operator": "Exists"}]
    }
    assert kubernetes_names.JOB_NAME in pod["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for c in pod["spec"]["containers"] for port in c.get("ports", [])}
    assert ports[endpoint["port"]] == REPORT
    labels = {rule["targetLabel"]: rule["sourceLabels"] for rule in endpoint["relabelings"] if "targetLabel" in rule}
    assert labels == {
        target: [f"__meta_kubernetes_pod_label_{re.sub(r'[^a-zA-Z0-9]', '_', key)}"]
        for target, key in (
            ("tpujob", kubernetes_names.JOB_NAME),
            ("slice", kubernetes_names.JOB_INDEX),
            ("host", kubernetes_names.COMPLETION_INDEX),
        )
    }


def test_jobs_are_monitored_where_they_are_served():
    everywhere = {"any": True}
    values = MONITORED | {"watchNamespaces": ["a", "b"]}
    for given, expected in ((MONITORED, everywhere), (values, {"matchNames": ["a", "b"]})):
        [monitor] = [m for m in of_kind("PodMonitor", given) if m["metadata"]["name"] == f"{NAME}-jobs"]
        assert monitor["spec"]["namespaceSelector"] == expected


def test_operators_are_scraped_once():
    both = {"metrics": {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}}}
    assert [monitor["metadata"]["name"] for monitor in of_kind("PodMonitor", both)] == [f"{NAME}-jobs"]
    [monitor] = of_kind("ServiceMonitor", both)
    [service] = of_kind("Service", both)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_service_monitor_needs_the_service():
    with pytest.raises(RefusedValues, match=r"serviceMonitor\.enabled needs the Service"):
        render({"metrics": {"service": False, "serviceMonitor": {"enabled": True}}})


@pytest.mark.parametrize(
    ("settings", "image"),
    [
        ([], "tpujob-operator and tpujob-trainer"),
        (["image.repository=mine/operator"], "tpujob-trainer"),
        (["trainerImage.repository=mine/trainer"], "tpujob-operator"),
    ],
    ids=str,
)
def test_images_that_nobody_can_pull_are_refused(settings, image):
    options = [f"--set={setting}" for setting in settings]
    with pytest.raises(RefusedValues, match=f"image.registry is not set, and no public registry has {image}"):
        run_helm("template", RELEASE, CHART, "--kube-version=1.35.0", *options)


def test_registry_stands_before_both_images():
    found = environment({"image": {"registry": "r.example/team", "preloaded": False}})
    assert found["OPERATOR_OPERATOR_IMAGE"] == "r.example/team/tpujob-operator:0.1.0"
    assert found["OPERATOR_TRAINER_IMAGE"] == "r.example/team/tpujob-trainer:0.1.0"


def test_cluster_without_jobset_is_refused():
    options = ("--kube-version=1.35.0", "--set=image.preloaded=true", "--api-versions=apiregistration.k8s.io/v1")
    with pytest.raises(RefusedValues, match=r"JobSet .* is not installed in this cluster"):
        run_helm("template", RELEASE, CHART, *options)
    run_helm("template", RELEASE, CHART, *options, "--api-versions=jobset.x-k8s.io/v1alpha2")
    run_helm("template", RELEASE, CHART, *options, "--set=jobSet.required=false")


def test_old_kubernetes_is_refused():
    with pytest.raises(RefusedValues, match=r"incompatible with Kubernetes v1\.30"):
        run_helm("template", RELEASE, CHART, "--kube-version=1.30.0", "--set=image.preloaded=true")


def test_affinity_of_values_replaces_ours():
    mine = {"nodeAffinity": {"a": "b"}}
    assert pod_template({"affinity": mine})["spec"]["affinity"] == mine
