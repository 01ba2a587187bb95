"""The one-machine cluster comes up, stays, and goes without a trace, also when it is killed on its way.

The last tests: they end the cluster on which the others were played. One that ran before `make e2e` is left alone.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.e2e.__main__ import BEFORE, say
from tests.e2e.surroundings import Surroundings
from tools.localcluster import background, machine, one_machine
from tools.localcluster.traces import Traces, new_traces, traces
from tools.localcluster.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.afterwards, pytest.mark.timeout(1500)]

DIRECTORY = background.DIRECTORY
OPERATOR = "app.kubernetes.io/name=tpujob-operator"


@pytest.fixture
def surroundings(surroundings: Surroundings) -> Surroundings:
    if not surroundings.is_own:
        pytest.skip("the cluster was brought: it is not ours to end")
    return surroundings


@pytest.fixture
def ours_to_end(surroundings: Surroundings) -> None:
    if not surroundings.ends_afterwards:
        pytest.skip("the cluster was up before: `make cluster-down` ends it")


@pytest.fixture
def before() -> Traces:
    """What was on the machine before the cluster of this run."""
    return json.loads(BEFORE.read_text())


@pytest.mark.core
def test_second_up_changes_nothing(surroundings: Surroundings) -> None:
    # A test before this one may have made another pod, and the last one still be leaving.
    wait_for("one operator pod", lambda: len(operators(surroundings)) == 1, timeout_seconds=300)
    processes, pods = traces(DIRECTORY)["processes"], operators(surroundings)

    result = command("up", "--node")

    assert result.returncode == 0, result.stderr
    assert f"export KUBECONFIG={DIRECTORY}/kubeconfig" in result.stdout
    assert operators(surroundings) == pods
    assert [process for process in processes if is_lasting(process)] == [
        process for process in traces(DIRECTORY)["processes"] if is_lasting(process)
    ]


@pytest.mark.core
@pytest.mark.usefixtures("ours_to_end")
def test_down_leaves_nothing(before: Traces) -> None:
    result = command("down")

    assert result.returncode == 0, result.stderr
    assert new_traces(before, traces(DIRECTORY)) == {}
    assert command("down").returncode == 0


@pytest.mark.usefixtures("ours_to_end")
@pytest.mark.parametrize("milestone", ["the control plane is ready", "the operator is installed"])
def test_down_cleans_up_after_a_crash(before: Traces, milestone: str) -> None:
    kill_after(milestone)
    assert new_traces(before, traces(DIRECTORY)) != {}

    result = command("down")

    assert result.returncode == 0, result.stderr
    assert new_traces(before, traces(DIRECTORY)) == {}


def operators(surroundings: Surroundings) -> list[str]:
    """Names of the operator's pods, also of those that are leaving."""
    pods = surroundings.client.items("pods", surroundings.operator_namespace, OPERATOR)
    return [pod["metadata"]["name"] for pod in pods]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m tools.localcluster` with these arguments."""
    return subprocess.run(
        [sys.executable, "-m", "tools.localcluster", *arguments], cwd=background.ROOT, capture_output=True, text=True
    )


def kill_after(milestone: str) -> None:
    """Starts the cluster in the background, and kills its holder without warning once it has said this."""
    machine.prepare(say)
    one_machine.end(DIRECTORY)
    log = DIRECTORY / "cluster.log"
    with log.open("wb") as output:
        holder = subprocess.Popen(
            [sys.executable, "-m", "tools.localcluster", "hold", f"--dir={DIRECTORY}"],
            cwd=background.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_for(
            "the cluster to come that far",
            lambda: holder.poll() is not None or milestone in log.read_text(),
            timeout_seconds=500,
            explain=log.read_text,
        )
        assert holder.poll() is None, log.read_text()
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()


def is_lasting(process: str) -> bool:
    """Whether a process is one of the cluster itself: those of pods and of commands come and go."""
    return any(name in process for name in ("/bin/kube", "/bin/etcd", "containerd --config", " hold "))
