"""What a real kube-apiserver says to resources, right and wrong, by the schema and the CEL rules."""

import json
import re
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.operator.manifests import TRAINER, manifest
from tests.resource.api.test_load import GOOD
from tests.resource.jobset.test_golden import FOLDER, NAMES
from tests.resource.topology.test_accelerators_by_invoice import ROWS
from tests.wrong_inputs.table import WRONG
from tools.localcluster.api import ApiError, Object
from tools.localcluster.control_plane import CommandError, ControlPlane
from tpujob_contract import kubernetes_names
from tpujob_operator.base.settings import Settings
from tpujob_resource.jobset.access import network_policy
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.errors import InvalidJob
from tpujob_resource.topology.tables import GENERATIONS

pytestmark = pytest.mark.control_plane

STRICT = "?dryRun=All&fieldValidation=Strict"
JOBS = "/apis/tpujob.dev/v1beta1/namespaces/default/tputrainingjobs"


def _deep(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def _create(plane: ControlPlane, body: Object) -> Object:
    return plane.api.create(JOBS + STRICT, body)


@pytest.mark.parametrize("name", [name for name, wrong in WRONG.items() if wrong.later is None])
def test_the_api_server_refuses_and_says_why(installed: ControlPlane, name: str) -> None:
    wrong = WRONG[name]
    with pytest.raises(ApiError) as refusal:
        _create(installed, wrong.job)
    assert refusal.value.status in (400, 422)
    if wrong.api is not None:
        assert wrong.api in refusal.value.message
    else:
        assert any(_without_value(line) in refusal.value.message for line in wrong.says)


def _without_value(line: str) -> str:
    """What is wrong with a field: the API server writes its path and its value in another form."""
    return re.sub(r'^[^ ]+: ("(\\.|[^"\\])*" |[0-9.]+ )?', "", line)


@pytest.mark.parametrize("name", [name for name, wrong in WRONG.items() if wrong.later is not None])
def test_the_operator_refuses_the_rest(installed: ControlPlane, name: str) -> None:
    with pytest.raises(InvalidJob):
        load_job(_create(installed, WRONG[name].job))


@pytest.mark.parametrize("name", GOOD)
def test_what_the_models_accept_the_api_server_accepts(installed: ControlPlane, name: str) -> None:
    _create(installed, GOOD[name])


def test_every_size_is_accepted(installed: ControlPlane) -> None:
    for generation in GENERATIONS.values():
        sizes = list(generation.sizes)
        for size in {*sizes[:12], *sizes[12::12], sizes[-1]}:
            _create(installed, manifest(accelerator=f"{generation.name}-{size}"))


@pytest.mark.parametrize(("name", "slices"), ROWS, ids=str)
def test_accelerators_are_accepted_as_people_name_them(installed: ControlPlane, name: str, slices: int) -> None:
    _create(installed, manifest(accelerator=name, slices=slices))


def test_a_number_with_an_exponent_is_a_whole_number(installed: ControlPlane) -> None:
    long = {**{key: value for key, value in TRAINER.items() if key != "steps"}, "tokens": 20e9}
    _create(installed, manifest(trainer=long))
    _create(installed, manifest(trainer={**TRAINER, "steps": 1e6, "optimizer": {"warmupSteps": 2e3}}))


def test_an_unknown_key_of_the_trainer_is_not_kept(installed: ControlPlane) -> None:
    given = manifest(trainer={**TRAINER, "checkpoint": {"prompt": 5}})
    with pytest.raises(ApiError, match=r'unknown field "spec\.trainer\.checkpoint\.prompt"'):
        _create(installed, given)
    # A client that asks for no validation gets a warning; docs/operations.md says so.
    created = installed.api.create(f"{JOBS}?dryRun=All", given)
    assert created["spec"]["trainer"]["checkpoint"] == {}


def test_a_deep_trainer_block_harms_nobody(installed: ControlPlane) -> None:
    with pytest.raises(ApiError, match="unknown field"):
        _create(installed, manifest(trainer={**TRAINER, "extra": _deep(200)}))


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
        ({"accelerator": "cpu:4x4"}, "Running", ["spec.accelerator cannot change while the job is Running"]),
        ({"slices": 2, "image": "b"}, "Running", ["spec.slices spec.image cannot change while the job is Running"]),
        ({"slices": 2}, "Queued", ["spec.slices", "while the job is Queued; set suspend: true"]),
        ({"trainer": {"seed": 5}}, "Starting", ["spec.trainer", "while the job is Starting"]),
        ({"trainer": {"batchSize": 32}}, "Running", ["spec.trainer", "while the job is Running"]),
        ({"env": [{"name": "A", "value": "2"}]}, "Running", ["spec.env", "while the job is Running"]),
        ({"env": None}, "Running", ["spec.env", "while the job is Running"]),
        ({"checkpointDir": "/other"}, "Running", ["spec.checkpointDir", "while the job is Running"]),
        ({"queue": "a"}, "Succeeded", ["spec.queue cannot change: the job has succeeded and stays as it was"]),
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
        "progress": {"tokensPerSecond": 1234567.0},
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


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (manifest(acelerator="v4-8"), "spec.acelerator"),
        (manifest(trainer={**TRAINER, "checkpoint": {"prompt": 5}}), "spec.trainer.checkpoint.prompt"),
    ],
    ids=["of the spec", "of the trainer"],
)
def test_kubectl_apply_names_a_misspelt_field(
    installed: ControlPlane, namespace: str, job: dict[str, Any], field: str
) -> None:
    with pytest.raises(CommandError, match=re.escape(f'unknown field "{field}"')):
        installed.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=json.dumps(job))


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
