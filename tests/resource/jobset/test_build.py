import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.operator.manifests import TRAINER, container_manifest, manifest
from tpujob_resource.jobset.build import materialize, spec_hash
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
POOL = "cloud.google.com/gke-nodepool"
SETTINGS = JobSettings()


def _jobset(given: dict[str, Any], settings: JobSettings = SETTINGS) -> dict[str, Any]:
    return materialize(load_job(given), settings)


def _job_spec(given: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = _jobset(given)["spec"]["replicatedJobs"][0]["template"]["spec"]
    return spec


def _pod_spec(given: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = _job_spec(given)["template"]["spec"]
    return spec


def _main(given: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = _pod_spec(given)["containers"][0]
    return container


@pytest.mark.parametrize(
    ("spec", "is_exclusive"),
    [
        ({"accelerator": "v5e-16"}, True),
        ({"accelerator": "v5e-16", "slices": 4}, True),
        ({"accelerator": "v5e-16", "queue": "team"}, True),
        ({"accelerator": "v5e-16", "queue": "team", "placement": {"requiredTopology": POOL}}, False),
        ({"accelerator": "v6e-8"}, False),
        ({"accelerator": "v6e-8", "workers": 4}, False),
        ({"accelerator": "cpu:4x1"}, False),
    ],
)
def test_only_multi_host_slices_have_a_node_pool_each(spec: dict[str, Any], is_exclusive: bool) -> None:
    assert (EXCLUSIVE in _jobset(manifest(**spec))["metadata"]["annotations"]) is is_exclusive


@pytest.mark.parametrize(
    ("spec", "suspended"),
    [({}, False), ({"suspend": True}, True), ({"queue": "team"}, True), ({"queue": "team", "suspend": True}, True)],
)
def test_a_queued_jobset_is_born_suspended(spec: dict[str, Any], suspended: bool) -> None:
    assert _jobset(manifest(**spec))["spec"]["suspend"] is suspended


@pytest.mark.parametrize(
    ("spec", "annotations"),
    [
        ({"queue": "team"}, None),
        ({"queue": "team", "placement": {"requiredTopology": POOL}}, {"kueue.x-k8s.io/podset-required-topology": POOL}),
        (
            {"queue": "team", "slices": 3, "placement": {"requiredTopology": POOL}},
            {"kueue.x-k8s.io/podset-slice-required-topology": POOL, "kueue.x-k8s.io/podset-slice-size": "4"},
        ),
    ],
)
def test_kueue_is_asked_to_place_whole_slices(spec: dict[str, Any], annotations: dict[str, str] | None) -> None:
    template = _job_spec(manifest(accelerator="v5e-16", **spec))["template"]
    assert template["metadata"].get("annotations") == annotations


def test_the_queue_is_a_label() -> None:
    assert _jobset(manifest(queue="team"))["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"


def test_chips_are_requested_and_limited_alike() -> None:
    resources = _main(manifest(accelerator="v6e-8", resources={"requests": {"cpu": 4}}))["resources"]
    assert resources["requests"] == {"cpu": 4, "memory": "1152Gi", "google.com/tpu": 8}
    assert resources["limits"] == {"google.com/tpu": 8}
    assert _main(manifest())["resources"] == {}


def test_the_operator_has_the_last_word_on_the_environment() -> None:
    names = [v["name"] for v in _main(manifest(env=[{"name": "MINE", "value": "1"}, {"name": "HOME"}]))["env"]]
    assert names[:2] == ["MINE", "HOME"]
    assert len(names) == len(set(names))


def test_a_home_of_the_users_own_is_kept() -> None:
    env = _main(manifest(env=[{"name": "HOME", "value": "/tmp/me"}]))["env"]
    assert [v for v in env if v["name"] == "HOME"] == [{"name": "HOME", "value": "/tmp/me"}]


def test_a_foreign_image_gets_the_launcher_carried_in() -> None:
    pod = _pod_spec(container_manifest(args=["--fast"]))
    assert pod["initContainers"][0]["image"] == SETTINGS.operator_image
    assert pod["containers"][0]["command"] == ["python3", "/tpujob/launch.pyz", "--", "python3", "train.py"]
    assert pod["containers"][0]["args"] == ["--fast"]
    assert {"name": "launcher", "mountPath": "/tpujob", "readOnly": True} in pod["containers"][0]["volumeMounts"]


def test_the_trainer_image_has_the_launcher() -> None:
    assert "initContainers" not in _pod_spec(manifest())
    assert _main(manifest())["command"] == [
        *("python", "-m", "tpujob_contract.launch", "--"),
        *("python", "-m", "tpujob_trainer"),
    ]


@pytest.mark.parametrize("given", [manifest(), container_manifest(), manifest(accelerator="v6e-8", workers=2)])
def test_pods_fit_the_restricted_profile(given: dict[str, Any]) -> None:
    pod = _pod_spec(given)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["restartPolicy"] == "Never"
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert all("emptyDir" in volume for volume in pod["volumes"])


def test_workers_fail_and_retry_alone() -> None:
    job = _job_spec(manifest(accelerator="v6e-8", workers=32, restarts={"crashes": 5}))
    assert (job["parallelism"], job["completions"], job["backoffLimitPerIndex"]) == (32, 32, 5)
    assert "backoffLimit" not in job
    actions = [rule["action"] for rule in job["podFailurePolicy"]["rules"]]
    assert actions == ["FailJob", "Ignore", "Ignore"]


def test_members_fail_together() -> None:
    job = _job_spec(manifest())
    assert job["backoffLimit"] == 0
    assert [rule["action"] for rule in job["podFailurePolicy"]["rules"]] == ["FailJob"] * 3


@pytest.mark.parametrize(
    ("capacity", "selector", "tolerated"),
    [
        ({"spot": True}, {"cloud.google.com/gke-spot": "true"}, {"cloud.google.com/gke-spot"}),
        ({"flexStart": True}, {"cloud.google.com/gke-flex-start": "true"}, {"cloud.google.com/gke-flex-start"}),
        (
            {"reservation": {"name": "r"}},
            {"cloud.google.com/reservation-name": "r", "cloud.google.com/reservation-affinity": "specific"},
            set(),
        ),
        (
            {"reservation": {"name": "r", "block": "b", "subBlock": "s"}},
            {
                "cloud.google.com/reservation-name": "r",
                "cloud.google.com/reservation-affinity": "specific",
                "cloud.google.com/reservation-blocks": "b",
                "cloud.google.com/reservation-subblocks": "s",
            },
            set(),
        ),
        ({"computeClass": "c"}, {"cloud.google.com/compute-class": "c"}, {"cloud.google.com/compute-class"}),
        ({"spot": False}, {}, set()),
    ],
)
def test_capacity_selects_and_tolerates(
    capacity: dict[str, Any], selector: dict[str, str], tolerated: set[str]
) -> None:
    pod = _pod_spec(manifest(accelerator="v6e-16", capacity=capacity))
    topology = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    assert pod["nodeSelector"] == {**topology, **selector}
    assert {t["key"] for t in pod["tolerations"]} == {"google.com/tpu"} | tolerated


def test_the_owner_is_named_once_there_is_one() -> None:
    given = manifest()
    assert "ownerReferences" not in _jobset(given)["metadata"]
    given["metadata"]["uid"] = "1234"
    (owner,) = _jobset(given)["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
        "TpuTrainingJob",
        "llama",
        "1234",
        True,
    )


def test_the_installations_settings_reach_the_pods() -> None:
    settings = JobSettings(trainer_image="trainer:9", image_pull_policy="Never", run_as_user=777)
    pod = _jobset(manifest(), settings)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert (pod["containers"][0]["image"], pod["containers"][0]["imagePullPolicy"]) == ("trainer:9", "Never")
    assert pod["securityContext"]["runAsUser"] == 777


@pytest.mark.parametrize(
    ("change", "is_the_same"),
    [
        ({}, True),
        ({"suspend": True}, True),
        ({"ttlSecondsAfterFinished": 5}, True),
        ({"activeDeadlineSeconds": 5}, True),
        ({"restarts": {"crashes": 9}}, True),
        ({"gracePeriodSeconds": 60}, True),
        ({"gracePeriodSeconds": 61}, False),
        ({"slices": 2}, False),
        ({"trainer": {**TRAINER, "seed": 1}}, False),
    ],
    ids=str,
)
def test_the_hash_changes_with_what_the_pods_are_made_from(change: dict[str, Any], is_the_same: bool) -> None:
    before, after = (spec_hash(load_job(m)) for m in (manifest(), manifest(**change)))
    assert (before == after) is is_the_same


_PRINT = """
import json, sys
from tpujob_resource.jobset.build import materialize
from tpujob_resource.rules.load import load_job
from tpujob_resource.models.settings import JobSettings
print(json.dumps(materialize(load_job(json.loads(sys.argv[1])), JobSettings())))
"""


def test_the_same_job_gives_the_same_bytes() -> None:
    given = container_manifest(env=[{"name": n} for n in "ABC"], nodeSelector={"z": "1", "a": "2"}, slices=2)
    here = json.dumps(_jobset(given))
    there = subprocess.run(
        [sys.executable, "-c", _PRINT, json.dumps(given)],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert there.stdout.strip() == here


@pytest.mark.parametrize("policy", [None, "IfNotPresent"], ids=["the cluster's own", "configured"])
def test_launcher_is_pulled_as_the_operator_says(policy: str | None) -> None:
    """An image of somebody's own gets the launcher from the operator's image, by the operator's pull policy."""
    given = _jobset(container_manifest(imagePullPolicy="Always"), JobSettings(image_pull_policy=policy))
    pod = given["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["initContainers"][0].get("imagePullPolicy") == policy
    assert pod["containers"][0]["imagePullPolicy"] == "Always"
