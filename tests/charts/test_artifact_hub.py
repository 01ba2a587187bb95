"""What Artifact Hub shows of the chart is what the chart installs."""

from typing import Any

from ruamel.yaml import YAML

from tests.charts.rendered import CHART
from tpujob_resource.crd.build import custom_resource_definition
from tpujob_resource.rules.load import load_job

YAML_READER = YAML(typ="safe", pure=True)


def annotation(name: str) -> Any:
    chart = YAML_READER.load(CHART / "Chart.yaml")
    return YAML_READER.load(chart["annotations"][f"artifacthub.io/{name}"])


def test_definition_is_the_installed_one() -> None:
    definition = custom_resource_definition()
    [version] = definition["spec"]["versions"]
    [shown] = annotation("crds")
    assert (shown["name"], shown["kind"]) == (definition["metadata"]["name"], definition["spec"]["names"]["kind"])
    assert shown["version"] == version["name"]


def test_example_is_a_valid_job() -> None:
    [example] = annotation("crdsExamples")
    assert load_job(example).accelerator.is_tpu
