"""Rules and dashboards as the chart installs them."""

import json

import pytest

from tests.charts.rendered import RefusedValues, of_kind
from tests.monitoring.test_rules import ALERTS, GROUPS, RUNBOOKS
from tools.monitoring import dashboards, runbooks

LIMIT_BYTES = 1 << 20
"""Of a ConfigMap."""


def test_sidecar_finds_every_dashboard():
    maps = of_kind(
        "ConfigMap", {"metrics": {"dashboards": {"enabled": True, "annotations": {"grafana_folder": "TPU"}}}}
    )
    found = {}
    for each in maps:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "TPU"}
        [(file, content)] = each["data"].items()
        assert len(content.encode()) < LIMIT_BYTES
        found[file] = json.loads(content)
    assert found == {f"tpujob-{name}.json": page.to_json() for name, page in dashboards.ALL.items()}


def test_installed_rule_is_the_tested_one():
    address = "https://example.org/runbooks"
    [rule] = of_kind("PrometheusRule", {"metrics": {"prometheusRule": {"enabled": True, "runbooks": address}}})
    installed = rule["spec"]["groups"]
    links = {
        alert["alert"]: alert["annotations"].pop("runbook_url")
        for group in installed
        for alert in group["rules"]
        if "alert" in alert
    }
    assert installed == GROUPS
    assert links == {name: f"{address}/{name}.md" for name in ALERTS}


def test_alerts_without_an_address_of_runbooks_say_what_to_do():
    [rule] = of_kind("PrometheusRule", {"metrics": {"prometheusRule": {"enabled": True}}})
    for alert in [alert for group in rule["spec"]["groups"] for alert in group["rules"] if "alert" in alert]:
        annotations, name = alert["annotations"], alert["alert"]
        assert "runbook_url" not in annotations
        assert annotations["description"].startswith(ALERTS[name]["annotations"]["description"])
        assert annotations["description"].endswith("\n\nWhat to do:\n" + runbooks.steps(RUNBOOKS / f"{name}.md"))


@pytest.mark.parametrize("address", ["docs/runbooks", "runbooks.example.org", "https://example.org/runbooks/"])
def test_address_of_runbooks_is_a_url(address):
    with pytest.raises(RefusedValues, match="runbooks"):
        of_kind("PrometheusRule", {"metrics": {"prometheusRule": {"enabled": True, "runbooks": address}}})
