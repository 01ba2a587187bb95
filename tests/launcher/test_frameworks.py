"""A framework finds its place in the job under the names that it reads."""

import pytest

from tests.harness.launched import JOB
from tpujob_contract import read_environment
from tpujob_contract.environment import CHECKPOINT_DIR, FRAMEWORK
from tpujob_launcher.supervise.environment import child_environment

MAXTEXT = {**JOB, FRAMEWORK: "maxtext", CHECKPOINT_DIR: "gs://b/llama"}
COMMAND = ("python3", "-m", "maxtext.trainers.pre_train.train", "base.yml", "steps=20")


PYTORCH = {**JOB, FRAMEWORK: "pytorch"}


def given(environ: dict[str, str], command: tuple[str, ...] = COMMAND) -> dict[str, str]:
    """What the launcher adds or changes."""
    child = child_environment(environ, read_environment(environ), command)
    return {name: value for name, value in child.items() if environ.get(name) != value}


def test_maxtext_gets_its_names_beside_those_of_jax():
    assert given(MAXTEXT) == {
        "JAX_COORDINATOR_ADDRESS": "llama-w-0-0.llama:8476",
        "JAX_NUM_PROCESSES": "8",
        "JAX_PROCESS_ID": "7",
        "JAX_PROCESS_COUNT": "8",
        "JOB_INDEX": "1",
        "JOB_COMPLETION_INDEX": "3",
        "PROCESSES_IN_JOB": "4",
        "JAX_COORDINATOR_PORT": "8476",
        "DECOUPLE_GCLOUD": "TRUE",
        "M_BASE_OUTPUT_DIRECTORY": "gs://b/llama",
        "M_RUN_NAME": "llama",
    }


def test_maxtext_on_cpu_wants_the_coordinator_without_its_port():
    assert given({**MAXTEXT, "JAX_PLATFORMS": "cpu"})["JAX_COORDINATOR_ADDRESS"] == "llama-w-0-0.llama"


@pytest.mark.parametrize(
    ("changes", "command", "absent"),
    [
        ({"M_RUN_NAME": "mine"}, COMMAND, "M_RUN_NAME"),
        ({}, (*COMMAND, "run_name=mine"), "M_RUN_NAME"),
        ({}, (*COMMAND, "base_output_directory=/x"), "M_BASE_OUTPUT_DIRECTORY"),
        ({"DECOUPLE_GCLOUD": "FALSE"}, COMMAND, "DECOUPLE_GCLOUD"),
        ({FRAMEWORK: "of tomorrow"}, COMMAND, "JAX_PROCESS_COUNT"),
    ],
    ids=["set by the person", "run_name given", "directory given", "cloud libraries wanted", "a newer framework"],
)
def test_what_is_set_by_hand_stays(changes: dict[str, str], command: tuple[str, ...], absent: str):
    assert absent not in given(MAXTEXT | changes, command)


PLACE = {"RANK": "7", "WORLD_SIZE": "8", "MASTER_ADDR": "llama-w-0-0.llama", "MASTER_PORT": "8476"}
JAX = {"JAX_COORDINATOR_ADDRESS": "llama-w-0-0.llama:8476", "JAX_NUM_PROCESSES": "8", "JAX_PROCESS_ID": "7"}
TORCHRUN = {
    "PET_NNODES": "8",
    "PET_NODE_RANK": "7",
    "PET_MASTER_ADDR": "llama-w-0-0.llama",
    "PET_MASTER_PORT": "8476",
}
ON_THIS_HOST = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "PJRT_DEVICE": "TPU"}


def test_pytorch_gets_the_names_of_env_of_torchrun_and_of_xla():
    assert given(PYTORCH, ("python3", "train.py")) == {**JAX, **PLACE, **TORCHRUN, **ON_THIS_HOST}


@pytest.mark.parametrize(
    ("changes", "name", "value"),
    [
        pytest.param({"JAX_PLATFORMS": "cpu"}, "PJRT_DEVICE", "CPU", id="on CPU devices"),
        pytest.param({"PJRT_DEVICE": "CPU"}, "PJRT_DEVICE", "CPU", id="device"),
        pytest.param({"MASTER_PORT": "29500"}, "MASTER_PORT", "29500", id="port"),
        pytest.param({"MASTER_PORT": "29500"}, "PET_MASTER_PORT", "29500", id="port of torchrun"),
        pytest.param({"RANK": "0"}, "RANK", "7", id="a rank that all would have"),
        pytest.param({"MASTER_ADDR": "localhost"}, "MASTER_ADDR", "llama-w-0-0.llama", id="an address of an image"),
    ],
)
def test_pytorch_keeps_what_may_be_chosen_and_nothing_else(changes: dict[str, str], name: str, value: str):
    environ = PYTORCH | changes
    assert child_environment(environ, read_environment(environ), ("python3", "train.py"))[name] == value
