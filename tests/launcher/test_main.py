"""What the launcher gives its program, what it refuses, and which exit code it leaves with."""

import importlib.util
import json
import signal
import socket
import sys

import pytest

from tests.harness.launched import JOB, PYTHON, WORKER
from tests.launcher.conftest import Launch
from tpujob_contract import read_environment
from tpujob_launcher.supervise.environment import child_environment
from tpujob_launcher.supervise.outcome import ExitResult, exit_code_of

STRANGER = {"JAX_COORDINATOR_ADDRESS": "elsewhere:1", "JAX_NUM_PROCESSES": "9", "JAX_PROCESS_ID": "9"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param(JOB, ("llama-w-0-0.llama:8476", "8", "7"), id="a process of a job"),
        pytest.param(JOB | STRANGER, ("llama-w-0-0.llama:8476", "8", "7"), id="nothing overrides them"),
        pytest.param(WORKER | STRANGER, (None, None, None), id="a worker has no peers"),
        pytest.param(STRANGER, ("elsewhere:1", "9", "9"), id="no job: left alone"),
    ],
)
def test_program_gets_its_ids(environ, expected):
    child = child_environment(environ, read_environment(environ))
    assert tuple(child.get(k) for k in STRANGER) == expected
    assert {k: v for k, v in child.items() if k not in STRANGER} == {
        k: v for k, v in environ.items() if k not in STRANGER
    }


def test_program_on_cpu_is_given_its_devices():
    environ = JOB | {"JAX_PLATFORMS": "cpu", "TPUJOB_CHIPS_PER_HOST": "4"}
    assert child_environment(environ, read_environment(environ))["JAX_LOCAL_DEVICE_IDS"] == "0,1,2,3"


@pytest.mark.parametrize("name", ["https_proxy", "HTTP_PROXY", "grpc_proxy", "all_proxy"])
def test_proxy_of_the_world_is_not_for_the_coordinator(launch: Launch, name: str) -> None:
    show = "import os; print(*(os.environ[name] for name in ('no_proxy', 'NO_PROXY', 'JAX_CHECK_PROXY_ENVS')))"
    environ = {name: "http://127.0.0.1:9", "NO_PROXY": "registry.example.com"}
    launched = launch(sys.executable, "-c", show, environ=environ)
    assert launched.wait() == 0, launched.stderr
    assert launched.stdout.split() == [*["registry.example.com,localhost,127.0.0.1,::1"] * 2, "false"]


def test_jax_in_a_pod_with_kubernetes_needs_no_token(launch: Launch):
    assert importlib.util.find_spec("kubernetes") is not None, "which JAX would look for a token with"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    program = f"""
import jax
jax.distributed.initialize({coordinator!r}, num_processes=1, process_id=0)
print(jax.device_count())
"""
    place = {"TPUJOB_SLICE": "0", "TPUJOB_HOST": "0", "TPUJOB_SLICES": "1", "TPUJOB_HOSTS_PER_SLICE": "1"}
    cpu = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2", "TPUJOB_CHIPS_PER_HOST": "2"}
    launched = launch(
        sys.executable, "-c", program, environ=JOB | place | cpu | {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}
    )
    assert launched.wait() == 0, launched.stderr
    assert launched.stdout == "2\n"


def test_any_program_sees_its_ids(launch: Launch):
    launched = launch(
        "sh",
        "-c",
        "echo $JAX_COORDINATOR_ADDRESS $JAX_PROCESS_ID/$JAX_NUM_PROCESSES $OTHER",
        environ=JOB | {"OTHER": "a b"},
    )
    assert launched.wait() == 0
    assert launched.stdout == "llama-w-0-0.llama:8476 7/8 a b\n"
    assert launched.stderr.startswith(
        "tpujob launch: process 7 of 8 of team-a/llama attempt 0, coordinator llama-w-0-0.llama:8476"
    )


def test_arguments_arrive_as_they_are(launch: Launch):
    arguments = ["a b", "", "--", "-x", "$HOME", "ü\n"]
    launched = launch(*PYTHON, "import json, sys; json.dump(sys.argv[1:], sys.stdout)", *arguments)
    assert launched.wait() == 0
    assert json.loads(launched.stdout) == arguments


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 1"], 1),
        (["sh", "-c", "exit 77"], 77),
        (["sh", "-c", "exit 127"], 127),
        (["sh", "-c", "exit 255"], 255),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
    ],
)
def test_exit_code_is_the_programs(launch: Launch, command, code):
    assert launch(*command).wait() == code


@pytest.mark.parametrize(
    ("command", "environ", "says"),
    [
        pytest.param(["true"], {"TPUJOB_SLICE": "0"}, "lacks TPUJOB_NAME", id="some variables are missing"),
        pytest.param(
            ["true"],
            JOB | {"TPUJOB_HOST": "4"},
            "TPUJOB_HOST='4' is not a whole number from 0 to 3",
            id="a value is wrong",
        ),
        pytest.param(
            ["no-such-program"], JOB, "'no-such-program' cannot be started: No such file", id="command not found"
        ),
        pytest.param(["train.py"], JOB, "needs its interpreter: write [python3, train.py]", id="a Python file"),
        pytest.param(["/etc/passwd"], JOB, "'/etc/passwd' cannot be started: Permission denied", id="not a program"),
        pytest.param([], JOB, "usage: python -m tpujob_contract.launch -- COMMAND", id="no command"),
    ],
)
def test_what_no_retry_would_mend_ends_with_78(launch: Launch, command, environ, says):
    launched = launch(*command, environ=environ)
    assert launched.wait() == 78
    [line] = launched.stderr.splitlines()[-1:]
    assert says in line
    assert "Traceback" not in launched.stderr
    assert launched.message == ["exit code 78, configuration wrong", line.removeprefix("tpujob launch: ")]


@pytest.mark.parametrize(
    ("result", "code", "diagnostics"),
    [
        pytest.param(ExitResult(0), 0, [], id="finished"),
        pytest.param(ExitResult(76), 76, [], id="failed"),
        pytest.param(
            ExitResult(75), 75, ["not told to stop: the program asks for another start"], id="asks for another start"
        ),
        pytest.param(
            ExitResult(0, stop_signal=signal.SIGTERM),
            75,
            ["told to stop by SIGTERM, the program returned 0"],
            id="stopped",
        ),
        pytest.param(
            ExitResult(0, other_asked="SIGTERM at process 1 on host h"),
            75,
            ["another process was told to stop (SIGTERM at process 1 on host h), the program returned 0"],
            id="stopped with another one",
        ),
        pytest.param(ExitResult(1, other_asked="SIGTERM at process 1"), 1, [], id="crashed after another was stopped"),
        pytest.param(
            ExitResult(75, stop_signal=signal.SIGTERM), 75, ["told to stop by SIGTERM"], id="stopped and said so"
        ),
        pytest.param(
            ExitResult(143, stop_signal=signal.SIGTERM), 143, ["told to stop by SIGTERM"], id="ended by the signal"
        ),
        pytest.param(ExitResult(130, stop_signal=signal.SIGINT), 130, ["told to stop by SIGINT"], id="ended by Ctrl-C"),
        pytest.param(
            ExitResult(1, ("a",), stop_signal=signal.SIGINT),
            1,
            ["a", "told to stop by SIGINT"],
            id="crashed on the way",
        ),
    ],
)
def test_only_a_zero_after_a_stop_is_changed(result, code, diagnostics):
    moment = ["program stopped at 1970-01-01T00:00:00.000000Z"] if code == 75 else []
    assert exit_code_of(result) == (code, [*diagnostics, *moment])
