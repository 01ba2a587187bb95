"""Every rendered object fits the schemas of three Kubernetes versions and of the Prometheus Operator, strictly."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.charts.rendered import CHART, NAMESPACE, RELEASE, run_helm
from tools.localcluster import binaries
from tools.localcluster.toolchain import ToolsUnavailable
from tools.schemas import folder, strict
from tools.schemas.sources import KUBERNETES

EVERYTHING = {
    "watchNamespaces": ["a", "b"],
    "imagePullSecrets": [{"name": "registry"}],
    "priorityClassName": "high",
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    "podAnnotations": {"a": "b"},
    "serviceAccount": {"annotations": {"a": "b"}},
    "metrics": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
}


def check(manifests: str, minor: str) -> list[dict[str, str]]:
    """What kubeconform says of each object."""
    try:
        schemas, program = folder.schemas(minor), binaries.path("kubeconform")
    except ToolsUnavailable as reason:
        pytest.skip(f"no kubeconform: {reason}")
    command: list[str | Path] = [
        program,
        "-strict",
        "-output=json",
        "-verbose",
        f"-schema-location={schemas / folder.LOCATION}",
        "-",
    ]
    done = subprocess.run(command, input=manifests, capture_output=True, text=True)
    assert done.stdout, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout)["resources"]
    return found


def rendered(values: object, minor: str, folder: Path) -> str:
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    options = (f"--kube-version={minor}.0", "--set=image.preloaded=true", f"--values={file}")
    return run_helm("template", RELEASE, CHART, f"--namespace={NAMESPACE}", *options)


@pytest.mark.parametrize("minor", KUBERNETES)
@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_object_is_valid(minor, values, tmp_path):
    manifests = rendered(values, minor, tmp_path)
    found = check(manifests, minor)
    assert [each for each in found if each["status"] != "statusValid"] == []
    assert len(found) == manifests.count("\nkind: ")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("replicaz: 2", "replicas: 2"),
        ("livenessProb:", "livenessProbe:"),
        ("containerPort: http", "containerPort: 8080"),
        ("intervall:", "interval:"),
    ],
)
def test_mistake_is_found(wrong, right, tmp_path):
    manifests = rendered({"metrics": {"podMonitor": {"enabled": True}}}, "1.33", tmp_path)
    assert right in manifests
    found = check(manifests.replace(right, wrong, 1), "1.33")
    assert "statusInvalid" in {each["status"] for each in found}


def test_strict_schema_knows_no_other_field():
    inner = {"type": "object", "properties": {"a": {}}}
    schema = {"type": "object", "properties": {"properties": inner, "format": {"type": "string"}}}
    made = strict.strict(schema)
    assert made["properties"].keys() == {"properties", "format"}
    assert made["additionalProperties"] is False
    assert made["properties"]["properties"]["additionalProperties"] is False
    assert "additionalProperties" not in strict.strict({**schema, "x-kubernetes-preserve-unknown-fields": True})
