"""The pod of a TPU host: what its machine and its capacity decide."""

from typing import Any

import pytest

from tests.operator.manifests import manifest
from tpujob_resource.jobset.build import build_jobset
from tpujob_resource.jobset.expand import expand_pods
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.rules.load import load_job
from tpujob_resource.topology.machines import MACHINES
from tpujob_resource.topology.tables import GENERATIONS


def _pod(settings: JobSettings | None = None, **spec: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Specification and environment of the first pod."""
    first = expand_pods(build_jobset(load_job(manifest(**spec)), settings or JobSettings()))[0]
    return dict(first.spec), first.environ


@pytest.mark.parametrize(
    ("spec", "settings", "grace"),
    [
        ({}, {}, 60),
        ({"capacity": {"spot": True}}, {}, 15),
        ({"capacity": {"spot": True}, "gracePeriodSeconds": 10}, {}, 10),
        ({"capacity": {"spot": True}}, {"spot_grace_seconds": 120}, 60),
        ({"capacity": {"spot": False}}, {}, 60),
        ({"capacity": {"flexStart": True}}, {}, 60),
    ],
)
def test_spot_machines_give_less_time(spec: dict[str, Any], settings: dict[str, Any], grace: int) -> None:
    pod, environ = _pod(JobSettings(**settings), accelerator="v5e-16", **spec)
    assert pod["terminationGracePeriodSeconds"] == grace
    assert environ["TPUJOB_GRACE_SECONDS"] == str(grace)


@pytest.mark.parametrize(
    ("accelerator", "shared", "cpu", "memory"),
    [("v5e-1", "9Gi", "19", "38Gi"), ("v5e-8", "76Gi", "179", "307Gi"), ("v4-16", "81Gi", "192", "325Gi")],
)
def test_the_machine_decides_requests_and_shared_memory(accelerator: str, shared: str, cpu: str, memory: str) -> None:
    pod, _ = _pod(accelerator=accelerator)
    (volume,) = [v for v in pod["volumes"] if v["name"] == "shared-memory"]
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": shared}
    main = pod["containers"][0]
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in main["volumeMounts"]
    requests = main["resources"]["requests"]
    assert (requests["cpu"], requests["memory"]) == (cpu, memory)


@pytest.mark.parametrize(
    ("resources", "settings", "requests"),
    [
        ({"requests": {"memory": "1Gi"}}, {}, {"cpu": "89", "memory": "1Gi"}),
        ({"limits": {"memory": "1Gi"}}, {}, {"cpu": "89"}),
        (None, {"machine_requests": False}, {}),
    ],
)
def test_what_a_job_asks_for_wins(resources: Any, settings: dict[str, Any], requests: dict[str, str]) -> None:
    pod, _ = _pod(JobSettings(**settings), accelerator="v5e-16", resources=resources)
    assert pod["containers"][0]["resources"]["requests"] == {**requests, "google.com/tpu": 4}


@pytest.mark.parametrize(("env", "platforms"), [(None, "tpu,cpu"), ([{"name": "JAX_PLATFORMS", "value": ""}], "")])
def test_a_tpu_job_never_trains_on_processors_unasked(env: Any, platforms: str) -> None:
    assert _pod(accelerator="v5e-16", env=env)[1]["JAX_PLATFORMS"] == platforms


def test_every_machine_of_the_topology_is_known() -> None:
    assert {machine for generation in GENERATIONS.values() for machine in generation.machines.values()} <= set(MACHINES)


@pytest.mark.parametrize(
    ("settings", "security"),
    [
        (
            {},
            {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
        ),
        (
            {"add_capabilities": ("SYS_RESOURCE",)},
            {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"], "add": ["SYS_RESOURCE"]},
                "readOnlyRootFilesystem": True,
            },
        ),
        ({"privileged": True}, {"privileged": True, "readOnlyRootFilesystem": True}),
    ],
    ids=str,
)
def test_only_the_administrator_widens_a_container(settings: dict[str, Any], security: dict[str, Any]) -> None:
    pod, _ = _pod(JobSettings(**settings))
    assert pod["containers"][0]["securityContext"] == security


HOST = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
CLAIMS = {"resourceClaims": [{"name": "multislice-network", "resourceClaimTemplateName": "cards"}]}
BY_HOST = {"multislice_host_network": True}
BY_CLAIM = {"multislice_claim_template": "cards"}
PREFIXES = "--megascale_grpc_interface_prefixes=eth1,eth2,lo"
OWN = {"env": [{"name": "LIBTPU_INIT_ARGS", "value": "--mine=1"}]}

# the job, the settings: fields of the pod, LIBTPU_INIT_ARGS
NO_FLAGS = {"libtpuFlags": "none"}
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str | None]] = {
    "not chosen": ({"accelerator": "v6e-16", "slices": 2}, {}, {}, None),
    "by the node": ({"accelerator": "v6e-16", "slices": 2}, BY_HOST, HOST, PREFIXES),
    "by a claim": ({"accelerator": "tpu7x:4x4x4", "slices": 2}, BY_CLAIM, CLAIMS, PREFIXES),
    "after the job's own": ({"accelerator": "v6e-16", "slices": 2, **OWN}, BY_HOST, HOST, f"--mine=1 {PREFIXES}"),
    "one slice": ({"accelerator": "v6e-16", **OWN}, BY_HOST, {}, "--mine=1"),
    "one card": ({"accelerator": "v5e-16", "slices": 2}, BY_HOST, {}, None),
    "processors": ({"accelerator": "cpu:2x1", "slices": 2}, BY_CLAIM, {}, None),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_several_slices_use_all_cards_where_the_administrator_chose(name: str) -> None:
    spec, chosen, fields, arguments = NETWORKS[name]
    pod, environ = _pod(JobSettings(**chosen), **NO_FLAGS, **spec)
    assert {key: pod[key] for key in ("hostNetwork", "dnsPolicy", "resourceClaims") if key in pod} == fields
    assert environ.get("LIBTPU_INIT_ARGS") == arguments
    claims = pod["containers"][0]["resources"].get("claims") if "resources" in pod["containers"][0] else None
    assert claims == ([{"name": "multislice-network"}] if "resourceClaims" in fields else None)


IMAGE = {"trainer": None, "image": "a/b:1", "command": ["train"]}
GATHER = "--xla_enable_async_all_gather=true"
V4 = f"{GATHER} --xla_enable_async_collective_permute=true"
SECRET = {"name": "LIBTPU_INIT_ARGS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}

# fields of the job: LIBTPU_INIT_ARGS
COMPILER_FLAGS: dict[str, tuple[dict[str, Any], str | None]] = {
    "a trainer": ({}, V4),
    "MaxText": ({**IMAGE, "framework": "maxtext"}, V4),
    "an image": (IMAGE, None),
    "an image that asks": ({**IMAGE, "libtpuFlags": "recommended"}, V4),
    "a trainer that does not": (NO_FLAGS, None),
    "flags beside": (OWN, f"{V4} --mine=1"),
    "own flags alone": ({**OWN, **NO_FLAGS}, "--mine=1"),
    "processors": ({"accelerator": "cpu:2x1", "libtpuFlags": "recommended"}, None),
    "a generation without a recipe": ({"accelerator": "v3-8"}, None),
    "workers": ({"workers": 2, "accelerator": "v4-8"}, V4),
}


@pytest.mark.parametrize("name", COMPILER_FLAGS)
def test_compiler_flags_are_for_programs_that_the_recipes_know(name: str) -> None:
    spec, arguments = COMPILER_FLAGS[name]
    _, environ = _pod(**{"accelerator": "v4-16", **spec})
    assert environ.get("LIBTPU_INIT_ARGS") == arguments


def test_flags_from_a_secret_stay_as_they_are() -> None:
    pod, _ = _pod(accelerator="v4-16", env=[SECRET])
    assert [each for each in pod["containers"][0]["env"] if each["name"] == "LIBTPU_INIT_ARGS"] == [SECRET]


def test_code_of_a_repository_is_fetched_through_the_proxy_of_the_job() -> None:
    code = {"repository": "https://git.example/a.git", "commit": "a" * 40}
    variables = [{"name": name, "value": "1"} for name in ("OTHER", "STORAGE_EMULATOR_HOST", "https_proxy", "no_proxy")]
    pod, _ = _pod(code=code, env=variables)
    (fetching,) = (each for each in pod["initContainers"] if each["name"] == "code")
    assert fetching["command"][2:] == ["tpujob_operator.repository", code["repository"], code["commit"], "/tpujob-code"]
    assert {variable["name"] for variable in fetching["env"]} >= {"https_proxy", "no_proxy"}
    assert not {variable["name"] for variable in fetching["env"]} & {"OTHER", "STORAGE_EMULATOR_HOST"}
    assert {"name": "TPUJOB_CODE_SHA256", "value": "a" * 40} in pod["containers"][0]["env"]


def test_packages_are_named_to_the_launcher() -> None:
    pod, _ = _pod(packages={"requirements": "requirements.txt", "wheels": "/share/wheels"})
    of_packages = {each["name"]: each["value"] for each in pod["containers"][0]["env"] if "value" in each}
    assert of_packages["TPUJOB_REQUIREMENTS"] == "requirements.txt"
    assert of_packages["TPUJOB_WHEELS"] == "/share/wheels"
    pod, _ = _pod(packages={"wheels": "wheels"})
    assert "TPUJOB_REQUIREMENTS" not in {each["name"] for each in pod["containers"][0]["env"]}


def test_repository_on_a_volume_is_mounted_where_code_is_fetched() -> None:
    volume = {"name": "share", "mountPath": "/share", "persistentVolumeClaim": "share"}
    pod, _ = _pod(code={"repository": "file:///share/a.git", "commit": "a" * 40}, volumes=[volume])
    (fetching,) = (each for each in pod["initContainers"] if each["name"] == "code")
    assert {"name": "share", "mountPath": "/share", "readOnly": True} in fetching["volumeMounts"]


def test_code_is_fetched_from_the_storage_of_the_job() -> None:
    code = {"archive": "gs://bucket/code.tar.gz", "sha256": "0" * 64}
    emulator = {"name": "STORAGE_EMULATOR_HOST", "value": "http://storage:80"}
    pod, _ = _pod(code=code, env=[{"name": "OTHER", "value": "1"}, emulator])
    (fetching,) = (each for each in pod["initContainers"] if each["name"] == "code")
    names = [variable["name"] for variable in fetching["env"]]
    assert "STORAGE_EMULATOR_HOST" in names
    assert "OTHER" not in names
