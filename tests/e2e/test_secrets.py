"""Secrets of a job: the value of one that it uses is nowhere but in its processes, and without that of its launchers
nobody ends it.
"""

import base64
import json
import secrets

import pytest

from tests.e2e.jobs import FOR_EVER, Jobs
from tpujob_contract import ports

pytestmark = [pytest.mark.e2e, pytest.mark.core, pytest.mark.timeout(1200)]

HELD = """
import os
assert os.environ["API_SECRET"] == open("/secret/key").read()
raise SystemExit("the login was refused")
"""
ARGUMENTS = "import pathlib; print([p.read_bytes() for p in pathlib.Path('/proc').glob('[0-9]*/cmdline')])"

# All that a stranger can guess, and an end that is never tried again; prints what the launcher answers.
STRANGER = """
import dataclasses, os, socket, sys
from tpujob_contract.environment import read_environment
from tpujob_launcher.peers import messages
process = read_environment(os.environ)
for secret in ("", "guessed"):
    line = socket.create_connection((process.coordinator.rpartition(":")[0], process.launcher_port), timeout=60)
    hello = messages.hello(dataclasses.replace(process, secret=secret))
    end = messages.ENDED, messages.values_of(messages.End(process.process_id, 77, 1.0, "a stranger's words"))
    line.sendall(messages.to_line(hello) + messages.to_line(end))
    try:
        print(line.makefile("rb").read())
    except ConnectionResetError:
        print(b"")  # closed before it had read all
"""


def test_nobody_ends_a_job_without_its_secret(jobs: Jobs) -> None:
    jobs.train("trains", steps=FOR_EVER, inPlaceRestarts=2)
    jobs.wait_until_it_trains("trains")
    first, second = (pod["metadata"]["name"] for pod in jobs.pods("trains"))

    # Beside the second trainer: no NetworkPolicy refuses it, only the launcher of the first can.
    assert jobs.run_inside(second, STRANGER) == "b''\nb''\n"

    asked = jobs.status("trains")["step"]
    status = jobs.wait("trains", "a later step", lambda status: status["step"] > asked)
    assert (status["phase"], status.get("restarts.total", 0), status.get("failure")) == ("Running", 0, None)
    assert "no message with this job's secret" in jobs.logs({"metadata": {"name": first}})


def test_secret_of_a_job_is_nowhere_to_be_read(jobs: Jobs) -> None:
    canary = f"canary-{secrets.token_hex(16)}"
    encoded = base64.b64encode(canary.encode()).decode()
    secret = {"apiVersion": "v1", "kind": "Secret", "data": {"key": encoded}}
    jobs.cluster.apply({**secret, "metadata": {"name": "canary", "namespace": jobs.namespace}})
    use = {
        "secretEnv": [{"name": "API_SECRET", "valueFrom": {"secretKeyRef": {"name": "canary", "key": "key"}}}],
        "volumes": [{"name": "secret", "mountPath": "/secret", "secret": "canary"}],
    }
    jobs.train("trains", steps=FOR_EVER, checkpoint={"everySeconds": 2}, **use)
    jobs.run("fails", HELD, restarts={"crashes": 0}, **use)

    jobs.wait("trains", "a checkpoint", lambda status: status.get("lastCheckpointStep"))
    failure = jobs.wait_phase("fails", "Failed")["failure"]
    assert "the login was refused" in failure["message"]
    places = {
        **objects(jobs),
        **{f"log of {pod['metadata']['name']}": jobs.logs(pod) for pod in jobs.pods("trains")},
        "log of the operator": operator_log(jobs),
        "arguments": jobs.run_inside(jobs.pods("trains")[0]["metadata"]["name"], ARGUMENTS),
        **served(jobs),
    }
    jobs.patch("trains", suspend=True)
    jobs.wait_phase("trains", "Suspended")
    places |= {f"object {name}": stored(jobs, name) for name in jobs.objects("trains")}

    assert len(places) > 15
    found = [place for place, text in places.items() if canary in text or encoded in text]
    assert found == []


def objects(jobs: Jobs) -> dict[str, str]:
    """All that the API server shows in the namespace, but for Secrets: arguments, status, terminations, Events."""
    kinds = ("ttj", "jobsets", "jobs", "pods", "events", "configmaps", "services", "networkpolicies")
    return {kind: json.dumps(jobs.cluster.items(kind, jobs.namespace)) for kind in kinds}


def operator_log(jobs: Jobs) -> str:
    where = f"--namespace={jobs.surroundings.operator_namespace}"
    return jobs.cluster.kubectl("logs", "--selector=app.kubernetes.io/name=tpujob-operator", "--tail=-1", where)


def served(jobs: Jobs) -> dict[str, str]:
    """What a trainer tells whoever asks."""
    name = jobs.pods("trains")[0]["metadata"]["name"]
    base = f"/api/v1/namespaces/{jobs.namespace}/pods/{name}:{ports.REPORT}/proxy"
    return {path: jobs.cluster.read(f"{base}{path}") for path in ("/", "/report", "/metrics")}


def stored(jobs: Jobs, name: str) -> str:
    return jobs.storage.read(f"{jobs.namespace}/trains/{name}").decode(errors="replace")
