from typing import Any

import pytest

from tests.operator.manifests import TRAINER, container_manifest, manifest
from tpujob_resource.models.spec import Spec
from tpujob_resource.rules.load import load_job, without_status
from tpujob_resource.topology.errors import InvalidJob

KNOWN = [field.alias or name for name, field in Spec.model_fields.items()]
ENV = {"name": "A", "value": "1"}

GOOD = {
    "the smallest": manifest(),
    "two slices": manifest(slices=2, accelerator="v5e-16"),
    "one slice of a single host": manifest(slices=1, accelerator="v6e-8"),
    "two of four slices": manifest(slices=4, minSlices=2, checkpointDir="gs://bucket/llama"),
    "fewer slices after a minute": manifest(
        slices=4,
        minSlices=1,
        shrinkAfterSeconds=60,
        startupSeconds=120,
        growAfterSeconds=3600,
        checkpointDir="gs://bucket/llama",
    ),
    "workers": manifest(workers=32, accelerator="v6e-8"),
    "volumes": manifest(
        accelerator="v5e-16",
        checkpointDir="/ckpt/llama",
        podLabels={"team": "a"},
        podAnnotations={"example.com/cost": "research"},
        volumes=[
            {"name": "ckpt", "mountPath": "/ckpt", "persistentVolumeClaim": "claim"},
            {"name": "data", "mountPath": "/data", "readOnly": True, "gcs": {"bucket": "b-1", "mountOptions": "o"}},
            {"name": "scratch", "mountPath": "/scratch", "emptyDir": {"sizeLimit": "10Gi"}},
            {"name": "keys", "mountPath": "/keys", "secret": "s"},
            {"name": "conf", "mountPath": "/conf", "configMap": "c"},
        ],
    ),
    "code of a repository": manifest(code={"repository": "https://git.example/a/project.git", "commit": "a" * 40}),
    "code of a folder": manifest(code={"repository": "file:///share/project", "commit": "a" * 40}),
    "code": manifest(code={"archive": "gs://bucket/code.tar.gz", "sha256": "0" * 64, "commit": f"{'a' * 40}+changes"}),
    "an image": container_manifest(args=["--steps", "3"]),
    "every field": manifest(
        accelerator="v5p-128",
        slices=2,
        env=[ENV, {"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}}],
        checkpointDir="gs://bucket/path",
        suspend=True,
        ttlSecondsAfterFinished=0,
        activeDeadlineSeconds=1,
        restarts={"crashes": 0},
        queue="team-a",
        priorityClassName="high",
        serviceAccountName="trainer",
        capacity={"reservation": {"name": "mine", "project": "my-project"}},
        nodeSelector={"cloud.google.com/gke-nodepool": "a", "zone": ""},
        tolerations=[{"key": "dedicated", "value": "tpu", "effect": "NoSchedule"}],
        startupSeconds=10,
        gracePeriodSeconds=5,
        imagePullPolicy="Always",
        imagePullSecrets=[{"name": "registry"}],
        resources={"requests": {"cpu": 8, "memory": "64Gi", "ephemeral-storage": "10Gi"}, "limits": {"memory": "80Gi"}},
    ),
    "a local checkpoint directory": manifest(checkpointDir="/data/llama"),
    "flex-start": manifest(accelerator="v6e-16", capacity={"flexStart": True}),
    "a false alternative": manifest(accelerator="v6e-16", capacity={"flexStart": True, "spot": False}),
    "tokens as a float": manifest(trainer={**{k: v for k, v in TRAINER.items() if k != "steps"}, "tokens": 20e9}),
    "null is absent": {**manifest(), "spec": {**manifest()["spec"], "slices": None, "queue": None}},
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_right_is_accepted(name: str) -> None:
    load_job(GOOD[name])


def _env(*variables: dict[str, Any]) -> dict[str, Any]:
    return manifest(env=list(variables))


BAD = {
    "empty": ({}, ["apiVersion: is missing", "kind: is missing", "metadata: is missing", "spec: is missing"]),
    "keys that are no words": (
        manifest("llama", **{"a\nb": 1, "nodeSelector": {"c\nd": "x"}}),
        [
            (
                'spec.nodeSelector["c\\nd"]: the key is not a label\'s key; write [PREFIX/]NAME, '
                "NAME of letters, digits, -, _ and ., such as example.com/pool"
            ),
            'spec["a\\nb"]: there is no such field; known: ' + ", ".join(KNOWN),
        ],
    ),
    "a block that JSON cannot carry": (
        manifest(trainer={**TRAINER, "seed": float("nan")}),
        [
            (
                "spec.trainer: holds something that JSON does not have (Out of range float values are not "
                "JSON compliant: nan); use strings, numbers, lists, mappings"
            )
        ],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_all_that_is_wrong_is_said(name: str) -> None:
    given, expected = BAD[name]
    with pytest.raises(InvalidJob) as refusal:
        load_job(given)
    assert sorted(refusal.value.problems) == sorted(expected)


def test_a_huge_trainer_block_is_refused() -> None:
    with pytest.raises(InvalidJob, match=r"spec.trainer: the spec is 70\d+ bytes of JSON, .* at most 65536"):
        load_job(manifest(trainer={**TRAINER, "sample": {"prompt": "x" * 70000}}))


def test_a_secret_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(InvalidJob) as refusal:
        load_job(_env({"name": "WANDB_API_KEY", "value": "canary"}))
    assert "canary" not in str(refusal.value)


def test_what_the_api_server_adds_is_accepted() -> None:
    given = manifest()
    given["metadata"] |= {
        "uid": "u",
        "generation": 3,
        "managedFields": [{"manager": "kubectl"}],
        "resourceVersion": "7",
    }
    given["status"] = {"phase": "Running", "somethingNewer": 1}
    job = load_job(given)
    assert (job.metadata.uid, job.metadata.generation, job.status.phase) == ("u", 3, "Running")


@pytest.mark.parametrize(
    ("spec", "hosts"),
    [
        ({"accelerator": "cpu:2x4"}, 2),
        ({"accelerator": "v5e-256", "slices": 2}, 128),
        ({"accelerator": "v6e-8", "workers": 20}, 20),
        ({"accelerator": "v6e-8", "nodeSelector": {"cloud.google.com/gke-accelerator-count": "4"}}, 2),
    ],
)
def test_hosts_are_counted_over_all_slices(spec: dict[str, Any], hosts: int) -> None:
    assert load_job(manifest(**spec)).hosts == hosts


def test_variables_of_devices_are_the_job_s_own_on_tpus() -> None:
    variables = [{"name": "JAX_NUM_CPU_DEVICES", "value": "4"}]
    load_job(manifest(accelerator="v6e-8", env=variables))
    with pytest.raises(InvalidJob, match='"JAX_NUM_CPU_DEVICES" is set by accelerator cpu:'):
        load_job(manifest(env=variables))


def test_only_several_slices_need_multislice() -> None:
    load_job(manifest(accelerator="v3-32", slices=1))
    with pytest.raises(InvalidJob, match="v3 has no multislice"):
        load_job(manifest(accelerator="v3-32", slices=2))


def test_status_alone_is_left_out() -> None:
    assert without_status({"kind": "TpuTrainingJob", "spec": {}, "status": {"phase": "?"}}) == {
        "kind": "TpuTrainingJob",
        "spec": {},
    }
