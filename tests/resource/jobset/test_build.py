import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.operator.manifests import TRAINER, container_manifest, manifest
from tpujob_resource.jobset.build import build_jobset, spec_hash
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job

SETTINGS = JobSettings()


def _jobset(given: dict[str, Any], settings: JobSettings = SETTINGS) -> dict[str, Any]:
    return build_jobset(load_job(given), settings)


def _pod_spec(given: dict[str, Any], settings: JobSettings = SETTINGS) -> dict[str, Any]:
    spec: dict[str, Any] = _jobset(given, settings)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return spec


def _main(given: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = _pod_spec(given)["containers"][0]
    return container


def test_the_operator_has_the_last_word_on_the_environment() -> None:
    names = [v["name"] for v in _main(manifest(env=[{"name": "MINE", "value": "1"}, {"name": "HOME"}]))["env"]]
    assert names[:2] == ["MINE", "HOME"]
    assert len(names) == len(set(names))


def test_a_home_of_the_users_own_is_kept() -> None:
    env = _main(manifest(env=[{"name": "HOME", "value": "/tmp/me"}]))["env"]
    assert [v for v in env if v["name"] == "HOME"] == [{"name": "HOME", "value": "/tmp/me"}]


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
    pod = _pod_spec(manifest(), settings)
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
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.rules.load import load_job
from tpujob_resource.models.settings import JobSettings
print(json.dumps(build_jobset(load_job(json.loads(sys.argv[1])), JobSettings())))
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
    pod = _pod_spec(container_manifest(imagePullPolicy="Always"), JobSettings(image_pull_policy=policy))
    assert pod["initContainers"][0].get("imagePullPolicy") == policy
    assert pod["containers"][0]["imagePullPolicy"] == "Always"


def test_a_pod_that_is_lost_is_replaced_alone_where_programs_start_again_in_place() -> None:
    job = _jobset(manifest(inPlaceRestarts=3))["spec"]["replicatedJobs"][0]["template"]["spec"]
    limits = {name: job.get(name) for name in ("backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes")}
    assert limits == {"backoffLimit": None, "backoffLimitPerIndex": 3, "maxFailedIndexes": 0}
    rules = [
        (rule["action"], *rule["onExitCodes"]["values"], rule["onExitCodes"]["operator"])
        if "onExitCodes" in rule
        else (rule["action"], rule["onPodConditions"][0]["type"])
        for rule in job["podFailurePolicy"]["rules"]
    ]
    assert rules == [
        ("FailJob", 76, 77, 78, "In"),
        ("Ignore", "DisruptionTarget"),
        ("Ignore", 75, 143, "In"),
        ("FailJob", 75, 137, 143, "NotIn"),
    ]
    names = {variable["name"] for variable in _main(manifest(inPlaceRestarts=3))["env"]}
    assert {"TPUJOB_POD", "TPUJOB_POD_FAILURES", "TPUJOB_POD_DISRUPTIONS"} <= names


def test_the_pod_of_a_job_that_has_one_is_not_replaced_alone() -> None:
    """Nobody else would know how often its program has started."""
    alone = manifest(accelerator="cpu:1x4", inPlaceRestarts=3)
    assert _jobset(alone)["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"] == 0
