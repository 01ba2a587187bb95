"""The Workload of a job that MultiKueue runs is the one that Kueue would make of its JobSet."""

from typing import Any

import pytest

from tests.operator.manifests import manifest
from tpujob_resource.jobset.access import build_secret
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.workload import build_workload, workload_name
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job

PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"


def _load(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, uid: str = "u", **spec: Any
) -> TpuTrainingJob:
    job = manifest("llama", **{"queue": "q", **spec})
    given = {"labels": labels, "annotations": annotations}
    job["metadata"] |= {"uid": uid, **{kind: values for kind, values in given.items() if values}}
    return load_job(job)


def test_containers_are_those_that_the_worker_makes() -> None:
    """Where the job has another uid, so that no Secret is called after it."""
    settings = JobSettings()
    workload = build_workload(_load(managedBy="kueue.x-k8s.io/multikueue", accelerator="v6e-16"), settings)
    there = _load(annotations={PREBUILT: workload["metadata"]["name"]}, uid="there", accelerator="v6e-16")
    jobset = build_jobset(there, settings)
    assert build_secret(there) is None
    (pod_set,), (replicated,) = workload["spec"]["podSets"], jobset["spec"]["replicatedJobs"]
    there = replicated["template"]["spec"]["template"]["spec"]
    for part in ("containers", "initContainers", "tolerations"):
        assert pod_set["template"]["spec"].get(part) == there.get(part)
    assert pod_set["name"] == replicated["name"]


def test_count_is_of_all_slices() -> None:
    (pod_set,) = build_workload(_load(accelerator="v6e-16", slices=2), JobSettings())["spec"]["podSets"]
    assert pod_set["count"] == 2 * 4


def test_topology_is_asked_for_as_by_kueue() -> None:
    level = {"requiredTopology": "cloud.google.com/gke-nodepool"}
    labels = {
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
    }

    def request(slices: int) -> Any:
        workload = build_workload(_load(accelerator="v6e-16", slices=slices, placement=level), JobSettings())
        return workload["spec"]["podSets"][0]["topologyRequest"]

    assert request(1) == {**labels, "subGroupCount": 1, "required": level["requiredTopology"]}
    of_slices = {"podSetSliceRequiredTopology": level["requiredTopology"], "podSetSliceSize": 4}
    assert request(2) == {**labels, "subGroupCount": 2, **of_slices}


def test_priority_and_the_time_of_a_provisioning_request_are_kueues() -> None:
    capacity = {"queuedProvisioning": {"maxRunSeconds": 3600}}
    workload = build_workload(_load(priorityClassName="high", capacity=capacity), JobSettings(), priority=7)
    name = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
    assert (workload["spec"]["priorityClassRef"], workload["spec"]["priority"]) == (name, 7)
    assert workload["metadata"]["annotations"] == {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "3600"}


def test_kueues_own_priority_goes_before_that_of_pods() -> None:
    label = {"kueue.x-k8s.io/priority-class": "urgent"}
    job = _load(labels={**label, "team": "a"}, priorityClassName="high")
    workload = build_workload(job, JobSettings(), priority=7)
    name = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "urgent"}
    assert (workload["spec"]["priorityClassRef"], workload["spec"]["priority"]) == (name, 7)
    labels = build_jobset(job, JobSettings())["metadata"]["labels"]
    assert label.items() <= labels.items()
    assert "team" not in labels
    assert not label.keys() & build_jobset(_load(labels=label, queue=None), JobSettings())["metadata"]["labels"].keys()


@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_workload_of_multikueue_is_named_where_kueue_named_it(kind: str) -> None:
    """A label up to Kueue 0.17, an annotation since 0.18; without a queue it is nobody's."""
    given: dict[str, Any] = {kind: {PREBUILT: "w"}}
    metadata = build_jobset(_load(**given), JobSettings())["metadata"]
    assert {each: metadata[each].get(PREBUILT) for each in ("labels", "annotations")} == {
        "labels": None,
        "annotations": None,
        kind: "w",
    }
    metadata = build_jobset(_load(**given, queue=None), JobSettings())["metadata"]
    assert PREBUILT not in metadata["labels"] | metadata["annotations"]


def test_workload_name_fits_a_label_whatever_the_job_is_called() -> None:
    names = {workload_name("a" * 49, uid, retry) for uid in ("one", "two") for retry in (0, 1)}
    assert (len(names), {len(name) for name in names}) == (4, {63})
