"""The operator's pod, which some tests end in their middle."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from tests.e2e.jobs import PATIENCE_SECONDS, Jobs
from tests.e2e.waiting import wait_for
from tools.localcluster.api import Object

FATES = (
    pytest.param(False, id="operator-stays"),
    pytest.param(True, id="operator-is-killed", marks=pytest.mark.ends_operator),
)
"""What becomes of it in the middle of a test, as parameters of a fixture; the test ends the same."""
QUICKLY = {
    "OPERATOR_REPORT_INTERVAL_SECONDS": "1",
    "OPERATOR_PROGRESS_INTERVAL_SECONDS": "1",
    "OPERATOR_RESTART_PAUSE_SECONDS": "1",
}
"""Settings with which it reads reports every second and hardly pauses between restarts."""
LABEL = "app.kubernetes.io/name=tpujob-operator"
DEPLOYMENT = ("deployment", f"--selector={LABEL}")


def kill(jobs: Jobs) -> None:
    """Ends the operator's pod without warning, and returns when the next one works."""
    client, namespace = jobs.cluster, jobs.surroundings.operator_namespace
    before = _names(jobs)
    if before:  # another test may have ended it just now
        where = (f"--namespace={namespace}", "--ignore-not-found")
        client.kubectl("delete", "pods", *before, *where, "--force", "--grace-period=0")
    wait_for("another pod of the operator", lambda: set(_names(jobs)) - set(before), timeout_seconds=PATIENCE_SECONDS)
    client.kubectl("rollout", "status", *DEPLOYMENT, f"--namespace={namespace}", f"--timeout={PATIENCE_SECONDS:.0f}s")


def scale(jobs: Jobs, replicas: int) -> None:
    """Stops the operator, or starts it again; returns when that is so."""
    where = f"--namespace={jobs.surroundings.operator_namespace}"
    jobs.cluster.kubectl("scale", *DEPLOYMENT, where, f"--replicas={replicas}")
    if replicas:
        jobs.cluster.kubectl("rollout", "status", *DEPLOYMENT, where, f"--timeout={PATIENCE_SECONDS:.0f}s")
    else:
        wait_for("the operator to be gone", lambda: not _names(jobs), timeout_seconds=PATIENCE_SECONDS)


@contextmanager
def with_settings(jobs: Jobs, **values: str) -> Iterator[None]:
    """The operator runs with other values of some of its variables, for as long as the block does."""
    before = {name: _value_of(jobs, name) for name in values}
    _set(jobs, values)
    try:
        yield
    finally:
        _set(jobs, before)


@contextmanager
def without_liveness(jobs: Jobs) -> Iterator[None]:
    """Nobody ends the operator because it does not answer, for as long as the block does."""
    path = "/spec/template/spec/containers/0/livenessProbe"
    probe = _deployment(jobs)["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
    _patch(jobs, {"op": "remove", "path": path})
    try:
        yield
    finally:
        _patch(jobs, {"op": "add", "path": path, "value": probe})


def name(jobs: Jobs) -> str:
    """The name of the one pod, once there is no other: the one before may be leaving."""
    found = wait_for("one pod of the operator", lambda: _only(_names(jobs)), timeout_seconds=PATIENCE_SECONDS)
    return str(found)


def _only(names: list[str]) -> str | None:
    return names[0] if len(names) == 1 else None


def _patch(jobs: Jobs, change: Object) -> None:
    where, name = f"--namespace={jobs.surroundings.operator_namespace}", _deployment(jobs)["metadata"]["name"]
    jobs.cluster.kubectl("patch", "deployment", name, where, "--type=json", f"--patch={json.dumps([change])}")
    jobs.cluster.kubectl("rollout", "status", *DEPLOYMENT, where, f"--timeout={PATIENCE_SECONDS:.0f}s")


def _deployment(jobs: Jobs) -> Object:
    (deployment,) = jobs.cluster.items("deployments", jobs.surroundings.operator_namespace, LABEL)
    return deployment


def _value_of(jobs: Jobs, name: str) -> str:
    variables = _deployment(jobs)["spec"]["template"]["spec"]["containers"][0]["env"]
    return next(str(variable["value"]) for variable in variables if variable["name"] == name)


def _set(jobs: Jobs, values: Mapping[str, str]) -> None:
    where = f"--namespace={jobs.surroundings.operator_namespace}"
    assignments = [f"{name}={value}" for name, value in values.items()]
    jobs.cluster.kubectl("set", "env", *DEPLOYMENT, where, *assignments)
    jobs.cluster.kubectl("rollout", "status", *DEPLOYMENT, where, f"--timeout={PATIENCE_SECONDS:.0f}s")


def _names(jobs: Jobs) -> list[str]:
    found = jobs.cluster.items("pods", jobs.surroundings.operator_namespace, LABEL)
    return [pod["metadata"]["name"] for pod in found]
