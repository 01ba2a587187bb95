"""The manifests for Argo CD and Flux give the chart values that it takes, and name every phase of a job."""

import json
import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.charts.rendered import CHART, RefusedValues, run_helm
from tests.docs.newcomer import ROOT, section
from tpujob_contract import kubernetes_names
from tpujob_resource.models.phases import Phase

PAGE = "docs/gitops.md"
SAFE = YAML(typ="safe", pure=True)
CLUSTER = ("--kube-version", "1.31.0", "--api-versions", "apiregistration.k8s.io/v1")
"""What a cluster serves, and a render without one does not know."""
JOBSET = ("--api-versions", "jobset.x-k8s.io/v1alpha2")
ANNOTATION_LIMIT = 256 * 1024
"""Bytes of all annotations of an object: k8s.io/apimachinery, TotalAnnotationSizeLimitB."""


def manifests(title: str) -> list[Any]:
    blocks = re.findall(r"```yaml\n(.*?)```", section(PAGE, title), re.DOTALL)
    return [each for block in blocks for each in SAFE.load_all(block)]


def of_kind(title: str, kind: str) -> Any:
    return next(each for each in manifests(title) if each["kind"] == kind)


def values(title: str) -> Any:
    if title == "Flux":
        return of_kind(title, "HelmRelease")["spec"]["values"]
    return of_kind(title, "Application")["spec"]["source"]["helm"]["valuesObject"]


def rendered(given: Any, *options: str) -> list[Any]:
    command = ["template", "tpujob", str(CHART), "--values", "-", *CLUSTER, *options]
    return [each for each in SAFE.load_all(run_helm(*command, stdin=json.dumps(given))) if each]


@pytest.mark.parametrize("title", ["Argo CD", "Flux"])
def test_the_values_render_where_jobset_is_and_only_there(title: str) -> None:
    found = rendered(values(title), *JOBSET)
    assert {"Deployment", "CustomResourceDefinition"} <= {each["kind"] for each in found}
    with pytest.raises(RefusedValues, match=r"JobSet \(jobset\.x-k8s\.io/v1alpha2\) is not installed"):
        rendered(values(title))


def test_a_render_without_a_registry_is_refused() -> None:
    with pytest.raises(RefusedValues, match=r"image\.registry is not set"):
        rendered({}, *JOBSET)


def test_the_chart_is_where_the_manifests_look() -> None:
    application = of_kind("Argo CD", "Application")["spec"]["source"]["path"]
    release = of_kind("Flux", "HelmRelease")["spec"]["chart"]["spec"]["chart"]
    assert application == release == str(CHART.relative_to(ROOT))


def test_the_definition_is_kept_and_too_large_for_an_annotation() -> None:
    of_chart = rendered(values("Argo CD"), *JOBSET)
    (found,) = (each for each in of_chart if each["kind"] == "CustomResourceDefinition")
    assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert (CHART / "crd" / "tputrainingjobs.yaml").stat().st_size > ANNOTATION_LIMIT
    assert "ServerSideApply=true" in of_kind("Argo CD", "Application")["spec"]["syncPolicy"]["syncOptions"]


def test_health_knows_every_phase() -> None:
    config = of_kind("Argo CD", "ConfigMap")["data"]
    lua = config[f"resource.customizations.health.{kubernetes_names.GROUP}_{kubernetes_names.KIND}"]
    health = dict(re.findall(r'(\w+) = "(\w+)"', lua))
    assert list(health) == [phase.value for phase in Phase]
    assert set(health.values()) <= {"Healthy", "Progressing", "Degraded", "Suspended"}
    (flux,) = of_kind("Flux", "Kustomization")["spec"]["healthCheckExprs"]
    assert (flux["apiVersion"], flux["kind"]) == (kubernetes_names.API_VERSION, kubernetes_names.KIND)
    named = re.findall(r"'(\w+)'", f"{flux['failed']} {flux['inProgress']} {flux['current']}")
    assert sorted(named) == sorted(phase.value for phase in Phase)
