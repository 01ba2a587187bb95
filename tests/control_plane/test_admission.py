"""What a real kube-apiserver says to resources, right and wrong, by the schema and the CEL rules."""

from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.operator.api.test_load import GOOD
from tests.operator.jobset.test_golden import FOLDER, NAMES
from tests.operator.manifests import TRAINER, container_manifest, manifest
from tools.localcluster.api import ApiError, Object
from tools.localcluster.control_plane import CommandError, ControlPlane
from tpujob_contract import kubernetes_names
from tpujob_operator.api.load import load_job
from tpujob_operator.errors import InvalidJob
from tpujob_operator.jobset.network_policy import network_policy
from tpujob_operator.settings import Settings
from tpujob_operator.topology.tables import GENERATIONS

pytestmark = pytest.mark.control_plane

STRICT = "?dryRun=All&fieldValidation=Strict"
JOBS = "/apis/tpujob.dev/v1alpha1/namespaces/default/tputrainingjobs"


def _env(name: str, **fields: Any) -> Object:
    return manifest(env=[{"name": name, **fields}])


def _deep(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


# name: (resource, words of the refusal)
REFUSED = {
    "no spec": ({k: v for k, v in manifest().items() if k != "spec"}, ["spec: Required value"]),
    "no accelerator": (manifest(accelerator=None), ["spec.accelerator: Required value"]),
    "unknown field": (manifest(acelerator="v4-8"), ['unknown field "spec.acelerator"']),
    "unknown field deep": (_env("A", valueFrom={"secretKeyRef": {"name": "s", "key": "k", "ns": "x"}}), ["unknown"]),
    "a namespace in a reference": (
        _env("A", valueFrom={"secretKeyRef": {"name": "s", "key": "k", "namespace": "kube-system"}}),
        ["unknown field"],
    ),
    "a raw pod spec": (manifest(template={"spec": {"hostNetwork": True}}), ['unknown field "spec.template"']),
    "host paths": (manifest(volumes=[{"hostPath": {"path": "/"}}]), ['unknown field "spec.volumes"']),
    "privileges": (manifest(securityContext={"privileged": True}), ['unknown field "spec.securityContext"']),
    "no form": (
        manifest(accelerator="tpu"),
        ["spec.accelerator", "not an accelerator; allowed: a size such as v5e-256"],
    ),
    "upper case": (manifest(accelerator="V4-8"), ["not an accelerator"]),
    "v4-12": (manifest(accelerator="v4-12"), ["v4 names count cores, 2 a chip", "v4-8 (4 chips on 1 host), v4-16"]),
    "v4-99998": (manifest(accelerator="v4-99998"), ["nearest: v4-4096"]),
    "v5litepod-24": (manifest(accelerator="v5litepod-24"), ["v5e-16 (16 chips on 4 hosts), v5e-32"]),
    "v5p-100": (manifest(accelerator="v5p-100"), ["v5p-64 (32 chips on 8 hosts), v5p-128"]),
    "v6e:3x4": (manifest(accelerator="v6e:3x4"), ["no v6e shape; shapes: 1x1, 2x2"]),
    "v6e:4x4x4": (manifest(accelerator="v6e:4x4x4"), ["not an accelerator"]),
    "v5p:4x4x6": (manifest(accelerator="v5p:4x4x6"), ["every dimension a multiple of 4, smallest first"]),
    "v5p:8x4x4": (manifest(accelerator="v5p:8x4x4"), ["smallest first"]),
    "v4:16x16x20": (manifest(accelerator="v4:16x16x20"), ["up to 4096 chips"]),
    "a selector in the accelerator": (manifest(accelerator="v4-8\nx"), ["not an accelerator"]),
    "a very long accelerator": (manifest(accelerator="v" * 10000), ["spec.accelerator", "Too long"]),
    "no slices": (manifest(slices=0), ["spec.slices", "greater than or equal to 1"]),
    "a million slices": (manifest(slices=10**6), ["spec.slices", "less than or equal to 256"]),
    "a million workers": (manifest(workers=10**6), ["spec.workers", "less than or equal to 4096"]),
    "slices in quotes": (manifest(slices="2"), ["spec.slices", 'must be of type integer: "string"']),
    "slices and workers": (manifest(slices=1, workers=1), ["slices and workers exclude each other"]),
    "trainer and image": (manifest(image="x", command=["y"]), ["give either trainer, or image and command"]),
    "neither": (manifest(trainer=None), ["give either trainer, or image and command"]),
    "image alone": (container_manifest(command=None), ["image and command go together"]),
    "args alone": (manifest(args=["x"]), ["spec.args", "args go with command"]),
    "a shell line": (container_manifest(command="rm -rf /"), ["spec.command", "must be of type array"]),
    "too many arguments": (container_manifest(args=["x"] * 513), ["spec.args", "Too many"]),
    "reserved variable": (_env("TPUJOB_COORDINATOR", value="x:1"), ["TPUJOB_COORDINATOR belongs to the operator"]),
    "reserved megascale": (_env("MEGASCALE_NUM_SLICES", value="9"), ["belongs to the operator"]),
    "reserved worker id": (_env("TPU_WORKER_ID", value="9"), ["belongs to the operator"]),
    "a token in the open": (_env("HF_TOKEN", value="hf_x"), ["use valueFrom.secretKeyRef"]),
    "value and source": (
        _env("A", value="1", valueFrom={"secretKeyRef": {"name": "s", "key": "k"}}),
        ["give value or valueFrom, not both"],
    ),
    "no source": (_env("A", valueFrom={}), ["give one of secretKeyRef, configMapKeyRef"]),
    "a variable twice": (manifest(env=[{"name": "A"}, {"name": "A"}]), ["spec.env[1]", "Duplicate value"]),
    "a strange variable": (_env("A B"), ["spec.env[0].name", "should match"]),
    "too many variables": (manifest(env=[{"name": f"A{i}"} for i in range(129)]), ["spec.env", "Too many"]),
    "JAX platforms on CPU": (_env("JAX_PLATFORMS", value="tpu"), ["are set by accelerator cpu:HOSTSxDEVICES"]),
    "another cloud": (manifest(checkpointDir="s3://b/x"), ["neither gs://BUCKET/PATH nor an absolute path"]),
    "a relative path": (manifest(checkpointDir="here"), ["neither gs://BUCKET/PATH nor an absolute path"]),
    "capacities": (manifest(capacity={"spot": True, "flexStart": True}), ["exclude each other; keep one"]),
    "owned selector": (
        manifest(nodeSelector={"cloud.google.com/gke-tpu-topology": "2x2"}),
        ["is set by spec.accelerator; leave it out"],
    ),
    "tolerating the end": (
        manifest(tolerations=[{"key": "cloud.google.com/impending-node-termination", "operator": "Exists"}]),
        ["never tolerate it"],
    ),
    "tolerating everything": (manifest(tolerations=[{"operator": "Exists"}]), ["spec.tolerations[0].key: Required"]),
    "a strange operator": (manifest(tolerations=[{"key": "a", "operator": "In"}]), ["supported values"]),
    "grace of an hour and more": (manifest(gracePeriodSeconds=3601), ["spec.gracePeriodSeconds"]),
    "negative ttl": (manifest(ttlSecondsAfterFinished=-1), ["spec.ttlSecondsAfterFinished"]),
    "a million crashes": (manifest(restarts={"crashes": 10**6}), ["spec.restarts.crashes"]),
    "a strange queue": (manifest(queue="a/b"), ["spec.queue"]),
    "Kueue's topology without a queue": (
        manifest(placement={"requiredTopology": "cloud.google.com/gke-nodepool"}),
        ["spec.placement.requiredTopology", "give queue, and no workers"],
    ),
    "a strange account": (manifest(serviceAccountName="../x"), ["spec.serviceAccountName"]),
    "a strange policy": (manifest(imagePullPolicy="always"), ['supported values: "Always"']),
    "an image with spaces": (container_manifest(image="a b"), ["spec.image"]),
    "an amount in words": (manifest(resources={"limits": {"memory": "lots"}}), ["spec.resources.limits.memory"]),
    "chips as resources": (manifest(resources={"limits": {"google.com/tpu": 4}}), ["unknown field"]),
    "50 characters": (manifest("a" * 50), ["metadata.name has more than 49 characters"]),
    "a digit first": (manifest("3d"), ["metadata.name begins with a lower-case letter"]),
    "a dot": (manifest("a.b"), ["metadata.name begins with a lower-case letter"]),
    "an empty trainer": (manifest(trainer={}), ["spec.trainer"]),
    "a trainer without data": (manifest(trainer={"model": {"preset": "tiny"}}), ["spec.trainer.data: Required value"]),
    "a trainer with a wrong type": (manifest(trainer={**TRAINER, "steps": "many"}), ["spec.trainer.steps"]),
    "a trainer that is a string": (manifest(trainer="x"), ["spec.trainer", "must be of type object"]),
}


def _create(plane: ControlPlane, body: Object) -> Object:
    return plane.api.create(JOBS + STRICT, body)


@pytest.mark.parametrize("name", REFUSED)
def test_the_api_server_refuses_and_says_why(installed: ControlPlane, name: str) -> None:
    body, words = REFUSED[name]
    with pytest.raises(ApiError) as refusal:
        _create(installed, body)
    assert refusal.value.status in (400, 422)
    for part in words:
        assert part in refusal.value.message
    with pytest.raises(InvalidJob):
        load_job(body)


@pytest.mark.parametrize("name", GOOD)
def test_what_the_models_accept_the_api_server_accepts(installed: ControlPlane, name: str) -> None:
    _create(installed, GOOD[name])


def test_every_size_is_accepted(installed: ControlPlane) -> None:
    for generation in GENERATIONS.values():
        sizes = list(generation.sizes)
        for size in {*sizes[:12], *sizes[12::12], sizes[-1]}:
            _create(installed, manifest(accelerator=f"{generation.name}-{size}"))


def test_unknown_keys_of_the_trainer_reach_the_operator(installed: ControlPlane) -> None:
    created = _create(installed, manifest(trainer={**TRAINER, "sequenceLenght": 8}))
    with pytest.raises(InvalidJob, match="did you mean sequenceLength"):
        load_job(created)


def test_a_deep_trainer_block_harms_nobody(installed: ControlPlane) -> None:
    with pytest.raises(InvalidJob):
        load_job(_create(installed, manifest(trainer={**TRAINER, "extra": _deep(200)})))


@pytest.mark.parametrize(
    ("change", "phase", "words"),
    [
        ({"accelerator": "cpu:4x4"}, None, None),
        ({"accelerator": "cpu:4x4"}, "Invalid", None),
        ({"accelerator": "cpu:4x4"}, "Suspended", None),
        ({"accelerator": "cpu:4x4"}, "Failed", None),
        ({"suspend": True}, "Running", None),
        ({"ttlSecondsAfterFinished": 60}, "Running", None),
        ({"activeDeadlineSeconds": 60}, "Running", None),
        ({"restarts": {"crashes": 7}}, "Running", None),
        ({"accelerator": "cpu:4x4"}, "Running", ["spec.accelerator", "cannot change while the job is Running"]),
        ({"slices": 2}, "Queued", ["spec.slices", "while the job is Queued; set suspend: true"]),
        ({"trainer": {"seed": 5}}, "Starting", ["spec.trainer", "while the job is Starting"]),
        ({"trainer": {"unknown": 5}}, "Running", ["spec.trainer", "while the job is Running"]),
        ({"env": [{"name": "A", "value": "2"}]}, "Running", ["spec.env", "while the job is Running"]),
        ({"env": None}, "Running", ["spec.env", "while the job is Running"]),
        ({"checkpointDir": "/other"}, "Running", ["spec.checkpointDir", "while the job is Running"]),
        ({"queue": "a"}, "Succeeded", ["spec.queue", "the job has succeeded and stays as it was"]),
    ],
    ids=str,
)
def test_a_running_job_keeps_what_it_was_made_from(
    installed: ControlPlane, namespace: str, change: dict[str, Any], phase: str | None, words: list[str] | None
) -> None:
    jobs = JOBS.replace("default", namespace)
    installed.api.create(jobs, manifest(env=[{"name": "A", "value": "1"}]))
    if phase is not None:
        installed.api.patch(f"{jobs}/llama/status", {"status": {"phase": phase}})
    if words is None:
        installed.api.patch(f"{jobs}/llama", {"spec": change})
        return
    with pytest.raises(ApiError) as refusal:
        installed.api.patch(f"{jobs}/llama", {"spec": change})
    for part in words:
        assert part in refusal.value.message


def test_status_and_labels_change_while_the_spec_stays(installed: ControlPlane, namespace: str) -> None:
    jobs = JOBS.replace("default", namespace)
    installed.api.create(jobs, manifest())
    installed.api.patch(f"{jobs}/llama/status", {"status": {"phase": "Running", "step": 1}})
    installed.api.patch(f"{jobs}/llama/status", {"status": {"step": 2}})
    changed = installed.api.patch(f"{jobs}/llama", {"metadata": {"labels": {"a": "b"}}})
    assert changed["status"] == {"phase": "Running", "step": 2}


def test_kubectl_get_reads_well(installed: ControlPlane, namespace: str) -> None:
    jobs = JOBS.replace("default", namespace)
    installed.api.create(jobs, manifest(accelerator="v5e-256", slices=2))
    status = {
        "phase": "Running",
        "ready": "128/128",
        "step": 1200,
        "tokensPerSecond": 1234567.0,
        "message": "Training.",
    }
    installed.api.patch(f"{jobs}/llama/status", {"status": status})
    header, row = installed.kubectl("get", "ttj", "--namespace", namespace).splitlines()
    assert header.split() == ["NAME", "ACCELERATOR", "PHASE", "HOSTS", "STEP", "TOKENS/S", "CHECKPOINT", "AGE"]
    assert row.split()[:6] == ["llama", "v5e-256", "Running", "128/128", "1200", "1234567"]
    assert "Training." in installed.kubectl("get", "tpujob", "--namespace", namespace, "--output", "wide")


def test_kubectl_explains_the_fields(installed: ControlPlane) -> None:
    explained = " ".join(installed.kubectl("explain", "ttj.spec").split())
    for words in ("accelerator <string> -required-", "One slice: a size", "Default 1. Excludes workers."):
        assert words in explained
    assert "preset\t<string>" in installed.kubectl("explain", "ttj.spec.trainer.model")


def test_kubectl_apply_names_a_misspelt_field(installed: ControlPlane, namespace: str) -> None:
    text = "apiVersion: tpujob.dev/v1alpha1\nkind: TpuTrainingJob\nmetadata: {name: a}\nspec: {acelerator: v4-8}\n"
    with pytest.raises(CommandError, match=r'unknown field "spec.acelerator"'):
        installed.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=text)


@pytest.mark.parametrize("name", NAMES)
def test_golden_jobsets_are_accepted_by_jobset(installed: ControlPlane, namespace: str, name: str) -> None:
    jobset = YAML(typ="safe", pure=True).load(FOLDER / f"{name}.jobset.yaml")
    jobset["metadata"]["namespace"] = namespace
    installed.api.create(f"/apis/{kubernetes_names.JOBSET_API_VERSION}/namespaces/{namespace}/jobsets{STRICT}", jobset)


def test_the_network_policy_is_accepted(installed: ControlPlane, namespace: str) -> None:
    given = manifest()
    given["metadata"]["namespace"] = namespace
    policy = network_policy(load_job(given), Settings())
    installed.api.create(f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies{STRICT}", policy)
