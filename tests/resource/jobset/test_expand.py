from typing import Any

import pytest

from tests.operator.manifests import container_manifest, manifest
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.expand import Pod, expand_pods, expand_references
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job


def _pods(given: dict[str, Any], **options: Any) -> list[Pod]:
    return expand_pods(build_jobset(load_job(given), JobSettings()), **options)


def test_pods_come_in_order_of_process_id() -> None:
    pods = _pods(manifest(slices=2))
    assert [pod.name for pod in pods] == ["llama-w-0-0", "llama-w-0-1", "llama-w-1-0", "llama-w-1-1"]
    assert [(pod.slice_index, pod.host_index) for pod in pods] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert pods[3].dns_name == "llama-w-1-1.llama-tpujob"


def test_workers_have_no_names_in_dns() -> None:
    assert [pod.dns_name for pod in _pods(manifest(workers=2, accelerator="cpu:1x1"))] == [None, None]


def test_counts_that_are_left_out_are_one() -> None:
    jobset = build_jobset(load_job(manifest()), JobSettings())
    (replicated,) = jobset["spec"]["replicatedJobs"]
    replicated.pop("replicas", None)
    for field in ("parallelism", "completions"):
        replicated["template"]["spec"].pop(field)
    (pod,) = expand_pods(jobset)
    assert (pod.name, pod.slice_index, pod.host_index) == ("llama-w-0-0", 0, 0)


def test_the_attempt_comes_from_the_label() -> None:
    assert _pods(manifest(), restart_attempt=3)[0].environ["TPUJOB_ATTEMPT"] == "3"


def test_launchers_meet_where_the_job_starts_again_in_place_alone():
    assert {pod.environ["TPUJOB_IN_PLACE"] for pod in _pods(manifest(inPlaceRestarts=3))} == {"3"}
    assert not [pod for pod in _pods(manifest()) if "TPUJOB_IN_PLACE" in pod.environ]


def test_values_of_secrets_are_left_to_the_cluster() -> None:
    reference = {"secretKeyRef": {"name": "s", "key": "k"}}
    pod = _pods(manifest(env=[{"name": "HF_TOKEN", "valueFrom": reference}]))[0]
    assert "HF_TOKEN" not in pod.environ
    assert pod.from_cluster == {"HF_TOKEN": reference}


def test_arguments_refer_to_variables_as_in_kubernetes() -> None:
    pods = _pods(container_manifest(args=["--slice=$(TPUJOB_SLICE)", "$$(HOME)", "$(NO_SUCH)", "$HOME"], slices=2))
    assert pods[2].argv[-4:] == ("--slice=1", "$(HOME)", "$(NO_SUCH)", "$HOME")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [("$(A)-$(A)", "1-1"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$(B)", "$(B)"), ("100$", "100$"), ("$(A", "$(A")],
)
def test_references_are_replaced_by_what_is_set(text: str, expanded: str) -> None:
    assert expand_references(text, {"A": "1"}) == expanded


def test_a_field_of_the_node_is_an_error() -> None:
    jobset = build_jobset(load_job(manifest()), JobSettings())
    main = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    main["env"].append({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}})
    with pytest.raises(ValueError, match=r"spec\.nodeName of pod llama-w-0-0 is known only on a node"):
        expand_pods(jobset)[0].environ  # noqa: B018 — resolved on first use


def test_first_attempt_is_number_0() -> None:
    assert {
        pod.environ["TPUJOB_ATTEMPT"] for pod in expand_pods(build_jobset(load_job(manifest()), JobSettings()))
    } == {"0"}


@pytest.mark.parametrize(("network", "has_names"), [({}, True), ({"enableDNSHostnames": False}, False)])
def test_hosts_have_names_unless_the_jobset_says_otherwise(network: dict[str, Any], has_names: bool) -> None:
    jobset = build_jobset(load_job(manifest()), JobSettings())
    jobset["spec"]["network"] = network
    assert (expand_pods(jobset)[0].dns_name is not None) is has_names
