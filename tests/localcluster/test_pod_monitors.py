"""A PodMonitor becomes the scrape configuration that the Prometheus Operator would make of it."""

from pathlib import Path

import pytest

from tools.localcluster.pod_monitors import scrape_configs

ENDPOINT = {"port": "report", "relabelings": [{"sourceLabels": ["a"], "targetLabel": "b"}]}


def monitor(**spec):
    metadata = {"name": "m", "namespace": "ns"}
    chosen = {
        "matchLabels": {"app.kubernetes.io/name": "a.b"},
        "matchExpressions": [{"key": "k", "operator": "Exists"}],
    }
    return {"metadata": metadata, "spec": {"selector": chosen, "podMetricsEndpoints": [ENDPOINT], **spec}}


def test_selector_port_and_relabelings_are_kept():
    [config] = scrape_configs(monitor(), Path("/k"))
    rules = config["relabel_configs"]
    label = "__meta_kubernetes_pod_label"
    assert rules[0] == {"action": "keep", "source_labels": [f"{label}_app_kubernetes_io_name"], "regex": r"a\.b"}
    assert rules[1] == {"action": "keep", "source_labels": [f"{label}present_k"], "regex": "true"}
    assert rules[3]["regex"] == "report"
    assert rules[-1] == {"source_labels": ["a"], "target_label": "b"}


@pytest.mark.parametrize(
    ("selector", "names"), [({}, ["ns"]), ({"matchNames": ["a", "b"]}, ["a", "b"]), ({"any": True}, None)]
)
def test_namespaces(selector, names):
    spec = {"namespaceSelector": selector} if selector else {}
    [config] = scrape_configs(monitor(**spec), Path("/k"))
    [discovery] = config["kubernetes_sd_configs"]
    assert discovery.get("namespaces", {}).get("names") == names


def test_unknown_selector_is_refused():
    selector = {"matchExpressions": [{"key": "k", "operator": "In", "values": ["a"]}]}
    with pytest.raises(ValueError, match="selector operator In"):
        scrape_configs(monitor(selector=selector), Path("/k"))
