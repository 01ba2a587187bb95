from typing import Any

import pytest

from tests.operator.manifests import container_manifest, manifest
from tpujob_resource.jobset.access import network_policy
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.expand import expand_pods
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job

SETTINGS = JobSettings(namespace="operators", monitoring_namespace="prometheus")


def _ingress(given: dict[str, Any]) -> list[dict[str, Any]]:
    ingress: list[dict[str, Any]] = network_policy(load_job(given), SETTINGS)["spec"]["ingress"]
    return ingress


def test_the_policy_selects_the_pods_of_the_job() -> None:
    job = load_job(manifest(slices=2))
    wanted = network_policy(job, SETTINGS)["spec"]["podSelector"]["matchLabels"]
    for pod in expand_pods(build_jobset(job, SETTINGS)):
        assert wanted.items() <= pod.labels.items()


def test_members_reach_each_other_on_every_port() -> None:
    assert _ingress(manifest())[0] == {"from": [{"podSelector": {"matchLabels": {"tpujob.dev/job-name": "llama"}}}]}


def test_others_reach_the_report_only() -> None:
    assert _ingress(manifest())[1:] == [
        {
            "from": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "operators"}}},
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "prometheus"}}},
            ],
            "ports": [{"protocol": "TCP", "port": 9432}],
        }
    ]


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        (container_manifest(inPlaceRestarts=3), [9432, 8474]),
        (container_manifest(), [9432]),
        (manifest(inPlaceRestarts=3), [9432]),
    ],
    ids=["any program", "never in place", "the trainer, which tells it in its report"],
)
def test_the_operator_reaches_the_account_of_restarts_in_place(given: dict[str, Any], ports: list[int]) -> None:
    assert [port["port"] for port in _ingress(given)[1]["ports"]] == ports
    (first, *_) = expand_pods(build_jobset(load_job(given), SETTINGS))
    assert first.environ.get("TPUJOB_IN_PLACE_PORT") == ("8474" if 8474 in ports else None)


def test_workers_do_not_reach_each_other() -> None:
    (only,) = _ingress(manifest(accelerator="cpu:1x1", workers=2))
    assert [port["port"] for port in only["ports"]] == [9432]
