from typing import Any

import pytest

from tests.operator.manifests import TRAINER, container_manifest, manifest
from tpujob_resource.errors import InvalidJob
from tpujob_resource.models.spec import Spec
from tpujob_resource.rules.load import load_job, without_status

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
    "another kind": ({**manifest(), "kind": "Pod"}, ["kind: \"Pod\" is not allowed; one of 'TpuTrainingJob'"]),
    "no spec": ({**manifest(), "spec": None}, ["spec: null is not a mapping"]),
    "misspelt": (manifest(acelerator="v4-8"), ["spec.acelerator: there is no such field; did you mean accelerator?"]),
    "snake case": (
        manifest(checkpoint_dir="/x"),
        ["spec.checkpoint_dir: there is no such field; did you mean checkpointDir?"],
    ),
    "misspelt deep inside": (
        _env({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "keys": "k"}}}),
        [
            "spec.env[0].valueFrom.secretKeyRef.key: is missing",
            "spec.env[0].valueFrom.secretKeyRef.keys: there is no such field; did you mean key?",
        ],
    ),
    "misspelt amount": (
        manifest(resources={"requests": {"ephemeral_storage": "1Gi"}}),
        ["spec.resources.requests.ephemeral_storage: there is no such field; did you mean ephemeral-storage?"],
    ),
    "a number in quotes": (manifest(slices="2"), ['spec.slices: "2" is not a whole number; write 2, without quotes']),
    "too few": (manifest(slices=0), ["spec.slices: 0 is too small; at least 1"]),
    "too many": (manifest(slices=257), ["spec.slices: 257 is too large; at most 256"]),
    "a value that is no string": (
        _env({"name": "A", "value": 1}),
        ["spec.env[0].value: 1 is not a string; put it in quotes"],
    ),
    "yes is not true": (manifest(suspend="yes"), ['spec.suspend: "yes" is neither true nor false']),
    "lower-case policy": (
        manifest(imagePullPolicy="always"),
        ["spec.imagePullPolicy: \"always\" is not allowed; one of 'Always', 'IfNotPresent' or 'Never'"],
    ),
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
    "two things at once": (
        manifest(slices=0, queue="A!"),
        [
            "spec.slices: 0 is too small; at least 1",
            (
                'spec.queue: "A!" is not a name in Kubernetes; allowed: lower-case letters, digits and -, '
                "beginning and ending with a letter or digit, and dots within"
            ),
        ],
    ),
    "a wrong amount": (
        manifest(resources={"limits": {"memory": "64 GB"}}),
        ['spec.resources.limits.memory: "64 GB" is not an amount such as 8, "500m" or "64Gi"'],
    ),
    "an amount that is a list": (
        manifest(resources={"limits": {"cpu": [8]}}),
        ['spec.resources.limits.cpu: [8] is not an amount such as 8, "500m" or "64Gi"'],
    ),
    "slices and workers": (
        manifest(slices=2, workers=2, accelerator="cpu:1x1"),
        ["spec.workers: excludes slices; slices train together, workers are independent: keep one of them"],
    ),
    "workers of several hosts": (
        manifest(workers=2, accelerator="v6e-16"),
        ["spec.workers: a worker is one host, and v6e-16 has 4; ask for v6e-1 or v6e-4 or v6e-8"],
    ),
    "workers of several CPU hosts": (
        manifest(workers=2),
        ["spec.workers: a worker is one host, and cpu:2x4 has 2; ask for cpu:1x4"],
    ),
    "slices of one host": (
        manifest(slices=4, accelerator="v6e-4"),
        [
            (
                "spec.slices: 4 slices of v6e-4, and GKE joins only multi-host slices; "
                "ask for one larger slice, or for workers: 4 if they need not talk"
            )
        ],
    ),
    "neither trainer nor image": (
        manifest(trainer=None),
        ["spec.trainer: is missing; describe a training run here, or give image and command"],
    ),
    "trainer and image": (
        manifest(image="x", command=["y"]),
        [
            "spec.command: excludes trainer, which brings its own; keep one of them",
        ],
    ),
    "image without command": (
        container_manifest(command=None),
        ["spec.command: is missing; the image's own entry point cannot be seen from outside, so name the command"],
    ),
    "command without image": (
        container_manifest(image=None),
        ["spec.image: is missing; command says what to run, image in what"],
    ),
    "a name too long": (
        manifest("a" * 50),
        [f'metadata.name: "{"a" * 50}" has 50 characters; at most 49, as pods add to it'],
    ),
    "a name too long for so many hosts": (
        manifest("a" * 49, accelerator="v5p-17920"),
        [f'metadata.name: "{"a" * 49}" has 49 characters; at most 48 for 2240 hosts, as pod names hold slice and host'],
    ),
    "a name with a dot": (
        manifest("llama.3"),
        [
            (
                'metadata.name: "llama.3" is not a DNS label; begin with a lower-case letter, '
                "go on with lower-case letters, digits and -, and do not end with -"
            )
        ],
    ),
    "reserved variables": (
        _env({"name": "TPUJOB_SLICE", "value": "0"}, {"name": "TPU_WORKER_ID"}),
        [
            "spec.env[0].name: TPUJOB_SLICE belongs to the operator, which sets what is right for each process",
            "spec.env[1].name: TPU_WORKER_ID belongs to the operator, which sets what is right for each process",
        ],
    ),
    "a variable that the accelerator sets": (
        _env({"name": "JAX_PLATFORMS", "value": "tpu"}),
        ["spec.env[0].name: JAX_PLATFORMS is set by accelerator cpu:2x4; leave it out"],
    ),
    "a variable twice": (_env(ENV, ENV), ["spec.env[1].name: A is there twice; keep one"]),
    "a token in plain text": (
        _env({"name": "HF_TOKEN", "value": "hf_canary"}),
        ["spec.env[0].value: HF_TOKEN does not belong in a manifest; use valueFrom.secretKeyRef"],
    ),
    "two sources": (
        _env({"name": "A", "valueFrom": {}}),
        ["spec.env[0].valueFrom: give one of secretKeyRef and configMapKeyRef"],
    ),
    "capacities that exclude each other": (
        manifest(capacity={"spot": True, "reservation": {"name": "r"}}),
        ["spec.capacity: spot and reservation exclude each other; keep one"],
    ),
    "flex-start on v4": (
        manifest(accelerator="v4-16", capacity={"flexStart": True}),
        ["spec.capacity.flexStart: v4 is not offered with flex-start; leave it out"],
    ),
    "a selector that another field owns": (
        manifest(nodeSelector={"cloud.google.com/gke-spot": "true"}),
        ['spec.nodeSelector["cloud.google.com/gke-spot"]: is set by spec.capacity.spot; leave it out'],
    ),
    "a count that no machine has": (
        manifest(accelerator="v6e-8", nodeSelector={"cloud.google.com/gke-accelerator-count": "two"}),
        [
            (
                'spec.nodeSelector["cloud.google.com/gke-accelerator-count"]: "two" is not a number of chips '
                "that a machine has: 1, 4 or 8"
            )
        ],
    ),
    "tolerating the end of a machine": (
        manifest(tolerations=[{"key": "cloud.google.com/impending-node-termination", "operator": "Exists"}]),
        [
            (
                "spec.tolerations[0].key: cloud.google.com/impending-node-termination announces the end of a machine; "
                "never tolerate it"
            )
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
    "a mistake in the trainer block": (
        manifest(trainer={**TRAINER, "sequenceLenght": 8}),
        ["spec.trainer.sequenceLenght: there is no such field; did you mean sequenceLength?"],
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
    with pytest.raises(InvalidJob, match="JAX_NUM_CPU_DEVICES is set by accelerator cpu:2x4"):
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
