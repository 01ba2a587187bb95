"""Jobs in real pods while the control plane has a bad night: etcd is killed, and watches lose their place (410).

Killed programs are started again by what holds the one-machine cluster, as a kubelet does on a control plane's machine.
"""

import os
import secrets
import signal
from collections.abc import Iterator

import pytest

from tests.e2e import operator_pod
from tests.e2e.host_processes import control_plane, frozen, operator_process, process_of
from tests.e2e.jobs import FOR_EVER, PATIENCE_SECONDS, Jobs, jobs_in_namespace
from tests.e2e.surroundings import Surroundings
from tests.e2e.test_upgrade import JOB, assert_goes_on, state
from tests.e2e.waiting import wait_for
from tools.localcluster.api import Object
from tools.localcluster.control_plane import CommandError

pytestmark = [pytest.mark.e2e, pytest.mark.afterwards, pytest.mark.timeout(1800)]

WAITS = "import signal; signal.pause()"


@pytest.fixture(scope="module", autouse=True)
def quick_operator(surroundings: Surroundings, text: str) -> Iterator[None]:
    if not surroundings.is_own:
        pytest.skip("kills the control plane of `make cluster`, and nobody else's")
    with (
        jobs_in_namespace(surroundings, text, "control-plane-drills", {}) as jobs,
        operator_pod.with_settings(jobs, **operator_pod.QUICKLY),
        operator_pod.without_liveness(jobs),
    ):
        yield


@pytest.fixture
def training(jobs: Jobs) -> Jobs:
    """A job that has made steps."""
    jobs.train(JOB, steps=FOR_EVER)
    jobs.wait(JOB, "steps", lambda status: status.get("phase") == "Running" and (status.get("step") or 0) > 0)
    return jobs


def test_training_outlives_a_killed_etcd(training: Jobs) -> None:
    before = state(training)

    kill(training, "etcd")

    assert_goes_on(training, before)
    training.run("afterwards", "print('done')")
    training.wait_phase("afterwards", "Succeeded")
    assert state(training) == before


@pytest.mark.faults
def test_deletions_between_two_places_of_the_watches_are_noticed(training: Jobs) -> None:
    """While the operator is frozen jobs and a JobSet go, jobs come, and the API server forgets its watches' places."""
    jobs = training
    for name in ("deleted", "bereft", "again"):
        jobs.run(name, WAITS, gracePeriodSeconds=5)
        jobs.wait_phase(name, "Running")
    before, old = state(jobs), jobs.status("again")
    pod = operator_pod.name(jobs)
    asked = refused_watches(jobs, pod)
    with frozen(operator_process(jobs, pod)):
        for name in ("deleted", "again"):
            jobs.delete(name)
        jobs.cluster.kubectl("delete", "jobset", "bereft", f"--namespace={jobs.namespace}", "--timeout=120s")
        wait_for("their pods to go", lambda: not pods_of(jobs, "deleted", "again"), timeout_seconds=PATIENCE_SECONDS)
        jobs.run("again", WAITS, gracePeriodSeconds=5)
        jobs.run("new", "print('done')")
        kill(jobs, "kube-apiserver")

    wait_for("a refused watch", lambda: refused_watches(jobs, pod) > asked, timeout_seconds=PATIENCE_SECONDS)
    jobs.wait_phase("new", "Succeeded")
    assert reasons(jobs.wait_phase("bereft", "Failed"), "Failed") == ["JobSetDeleted"]
    assert jobs.wait_phase("again", "Running")["internal.jobSetUid"] != old["internal.jobSetUid"]
    assert_goes_on(jobs, before)
    assert jobset_names(jobs) == {JOB, "again", "new"}
    assert operator_pod.name(jobs) == pod


def kill(jobs: Jobs, program: str) -> None:
    """Kills a program of the control plane, and returns when another process of it works."""
    process = process_of(program)
    os.kill(process, signal.SIGKILL)
    wait_for(f"another {program}", lambda: set(control_plane(program)) - {process}, timeout_seconds=PATIENCE_SECONDS)
    wait_for("the API server to take writes", lambda: takes_writes(jobs), timeout_seconds=PATIENCE_SECONDS)


def takes_writes(jobs: Jobs) -> bool:
    """Whether something can be written: /readyz may not have noticed yet that etcd is away."""
    try:
        jobs.cluster.kubectl("annotate", "namespace", jobs.namespace, "--overwrite", f"write={secrets.token_hex(4)}")
    except CommandError:
        return False
    return True


def refused_watches(jobs: Jobs, pod: str) -> int:
    """How often the operator was told that the API server does not know the place of a watch (any more)."""
    log = jobs.cluster.kubectl("logs", pod, f"--namespace={jobs.surroundings.operator_namespace}")
    return log.count("410: too old resource version")


def reasons(status: Object, condition: str) -> list[str]:
    return [each["reason"] for each in status["conditions"] if each["type"] == condition]


def pods_of(jobs: Jobs, *names: str) -> list[Object]:
    return [pod for name in names for pod in jobs.pods(name)]


def jobset_names(jobs: Jobs) -> set[str]:
    return {each["metadata"]["name"] for each in jobs.cluster.items("jobsets", jobs.namespace)}
