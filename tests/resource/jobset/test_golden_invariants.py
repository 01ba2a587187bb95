"""What must hold in every golden JobSet, so that a regression is an error and not a difference to wave through.

The expectations are read as files: nothing here runs the code that made them. Names and values stand as JobSet,
Kubernetes, GKE and JAX have them.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.resource.jobset.test_golden import FOLDER, NAMES
from tpujob_contract import DistributedProcess, IndependentWorker, read_environment
from tpujob_resource.jobset.expand import Pod, expand_pods

FATAL, STOPPED = [76, 77, 78], [75]
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


class Golden:
    """A job and its JobSet as they stand in the folder."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.spec = _read(FOLDER / f"{name}.job.yaml")["spec"]
        self.jobset = _read(FOLDER / f"{name}.jobset.yaml")
        (replicated,) = self.jobset["spec"]["replicatedJobs"]
        self.slices: int = replicated["replicas"]
        self.job: dict[str, Any] = replicated["template"]["spec"]
        self.pod: dict[str, Any] = self.job["template"]["spec"]
        (self.container,) = (each for each in self.pod["containers"] if each["name"] == "main")
        self.is_tpu = not self.spec["accelerator"].startswith("cpu")
        self.is_gang = "workers" not in self.spec

    def pods(self) -> list[Pod]:
        return expand_pods(self.jobset)


@functools.cache
def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(path)
    return found


@pytest.fixture(params=NAMES)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def test_slices_and_pods_are_as_many_as_asked_for(golden: Golden) -> None:
    asked = golden.spec.get("slices", 1)
    assert golden.slices == asked
    assert golden.job["parallelism"] == golden.job["completions"]
    assert golden.job["completionMode"] == "Indexed"
    if not golden.is_gang:
        assert golden.job["completions"] == golden.spec["workers"]


def test_process_ids_count_from_0_without_a_gap(golden: Golden) -> None:
    processes = [read_environment(pod.environ) for pod in golden.pods()]
    if not golden.is_gang:
        assert [each.worker for each in processes if isinstance(each, IndependentWorker)] == list(range(len(processes)))
        return
    gang = [each for each in processes if isinstance(each, DistributedProcess)]
    assert [each.process_id for each in gang] == list(range(golden.slices * golden.job["completions"]))
    assert {each.num_processes for each in gang} == {len(processes)}


def test_coordinator_is_the_first_pod_by_its_stable_name(golden: Golden) -> None:
    if not golden.is_gang:
        assert not [key for pod in golden.pods() for key in pod.environ if key == "TPUJOB_COORDINATOR"]
        return
    name, network = golden.jobset["metadata"]["name"], golden.jobset["spec"]["network"]
    first = f"{name}-w-0-0.{network['subdomain']}"
    assert {pod.environ["TPUJOB_COORDINATOR"] for pod in golden.pods()} == {f"{first}:8476"}
    assert network["enableDNSHostnames"] is True
    assert network["publishNotReadyAddresses"] is True, "hosts look for process 0 before they are ready"
    assert {"name": "coordinator", "containerPort": 8476, "protocol": "TCP"} in golden.container["ports"]


def test_megascale_is_there_exactly_for_several_slices(golden: Golden) -> None:
    found = {key for pod in golden.pods() for key in pod.environ if key.startswith("MEGASCALE_")}
    assert bool(found) == (golden.slices > 1)
    for pod in golden.pods() if found else []:
        assert pod.environ["MEGASCALE_NUM_SLICES"] == str(golden.slices)
        assert pod.environ["MEGASCALE_SLICE_ID"] == str(pod.slice_index)


def test_multi_host_slices_have_a_node_pool_each(golden: Golden) -> None:
    annotations = golden.jobset["metadata"].get("annotations", {})
    is_multi_host = golden.is_gang and golden.is_tpu and golden.job["completions"] > 1
    # With Kueue's topologies Kueue places whole slices.
    words = ("podset-slice", "podset-required-topology", "gke-tpu-slice-topology")
    is_placed_by_kueue = any(word in str(golden.jobset) for word in words)
    assert annotations.get(EXCLUSIVE) == (
        "cloud.google.com/gke-nodepool" if is_multi_host and not is_placed_by_kueue else None
    )


def test_chips_are_requested_limited_and_told_alike(golden: Golden) -> None:
    resources = golden.container["resources"]
    chips = resources.get("limits", {}).get("google.com/tpu")
    assert resources.get("requests", {}).get("google.com/tpu") == chips
    if not golden.is_tpu:
        assert chips is None
        return
    assert {pod.environ["TPUJOB_CHIPS_PER_HOST"] for pod in golden.pods()} == {str(chips)}
    # Of a part of a pool, or of several pools put together, the annotation has the shape.
    annotations = golden.job["template"]["metadata"].get("annotations", {})
    selected = golden.pod["nodeSelector"].get("cloud.google.com/gke-tpu-topology")
    shape = annotations.get("cloud.google.com/gke-tpu-slice-topology", selected)
    chips_of_slice = 1
    for side in shape.split("x"):
        chips_of_slice *= int(side)
    hosts = golden.job["completions"] if golden.is_gang else 1
    assert chips * hosts == chips_of_slice
    assert {"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"} in golden.pod["tolerations"]


def test_fatal_codes_end_the_job_whatever_else_happened(golden: Golden) -> None:
    rules = golden.job["podFailurePolicy"]["rules"]
    # Whatever ends with codes of the contract: the program, and what fetches the job's own code.
    judged = ["main", *(each["name"] for each in golden.pod.get("initContainers", ()) if each["name"] == "code")]
    fatal, others = rules[: len(judged)], rules[len(judged) :]
    assert [rule["action"] for rule in fatal] == ["FailJob"] * len(judged)
    assert [(rule["onExitCodes"]["containerName"], rule["onExitCodes"]["values"]) for rule in fatal] == [
        (name, FATAL) for name in judged
    ]
    free = "FailJob" if golden.is_gang else "Ignore"
    assert [rule["action"] for rule in others] == [free, free]
    assert others[0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert others[1]["onExitCodes"]["values"] == STOPPED


def test_members_restart_together_and_workers_alone(golden: Golden) -> None:
    policy = golden.jobset["spec"]["failurePolicy"]
    assert golden.pod["restartPolicy"] == "Never"
    assert golden.job["podReplacementPolicy"] == "Failed", "a new pod while the old one still writes"
    if not golden.is_gang:
        assert policy["maxRestarts"] == 0
        assert golden.job["backoffLimitPerIndex"] >= 0
        return
    assert golden.job["backoffLimit"] == 0
    assert policy["restartStrategy"] == "BlockingRecreate"
    assert [rule["action"] for rule in policy["rules"]] == ["FailJobSet", "RestartJobSetAndIgnoreMaxRestarts"]
    assert policy["maxRestarts"] >= 1000, "the operator keeps the budget, JobSet's field cannot change"


def test_time_to_save_is_what_kubernetes_gives(golden: Golden) -> None:
    grace = golden.pod["terminationGracePeriodSeconds"]
    assert {pod.environ["TPUJOB_GRACE_SECONDS"] for pod in golden.pods()} == {str(grace)}


def test_pods_have_no_rights(golden: Golden) -> None:
    assert golden.pod["automountServiceAccountToken"] is False
    assert golden.pod["securityContext"]["runAsNonRoot"] is True
    assert golden.pod["securityContext"]["runAsUser"] > 0
    assert golden.pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*golden.pod["containers"], *golden.pod.get("initContainers", [])]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_everything_is_found_by_the_name_of_the_job(golden: Golden) -> None:
    name = golden.jobset["metadata"]["name"]
    for labels in (golden.jobset["metadata"]["labels"], golden.job["template"]["metadata"]["labels"]):
        assert labels["tpujob.dev/job-name"] == name
        assert labels["tpujob.dev/incarnation"] == ("2" if golden.name == "retried" else "1")


def test_queued_jobs_wait_for_kueue(golden: Golden) -> None:
    labels = golden.jobset["metadata"]["labels"]
    assert labels.get("kueue.x-k8s.io/queue-name") == golden.spec.get("queue")
    assert golden.jobset["spec"]["suspend"] is bool(golden.spec.get("queue") or golden.spec.get("suspend"))
