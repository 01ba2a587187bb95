"""The signature of an address in a job is in its spec and in what its pods are given, and nowhere else on a cluster."""

import json
from pathlib import Path

import pytest

from tests.docs.newcomer import Newcomer
from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tools.localcluster import binaries
from tools.localcluster.waiting import wait_for

pytestmark = [pytest.mark.control_plane]

CANARY = "canary9b1e"
SIGNED = f"https://storage.example/data.jsonl?X-Goog-Signature={CANARY}&X-Goog-Expires=60"
TRAINER = {"model": {"preset": "tiny"}, "data": {"path": SIGNED}, "steps": 5, "batchSize": 4, "sequenceLength": 64}


def test_signature_is_in_no_status_event_metric_log_or_output(
    jobs: Jobs, operator: OperatorProcess, tmp_path: Path
) -> None:
    """A pod ends with the address in its last words, once as a crash and then for good."""
    jobs.create("signed", trainer=TRAINER, image=None, command=None, restarts={"crashes": 1})
    message = f"could not read {SIGNED} (403 for 60 s)"
    found = jobs.run("signed")
    jobs.wait_phase("signed", "Running")
    jobs.end_pod(found[0], exit_code=1, message=message)
    jobs.wait("signed", "the restart", lambda status: status.get("restarts.charged") == 1)
    newcomer = Newcomer(tmp_path, kubeconfig(jobs, tmp_path), binaries.path("kubectl").parent)
    during = {verb: newcomer.types(f"tpujob {verb} signed") for verb in ("describe", "get", "describe -o json")}
    for pod in jobs.wait_pods("signed", other_than=found):
        jobs.end_pod(pod, exit_code=77, message=message)

    status = jobs.wait_phase("signed", "Failed")

    assert "could not read https://storage.example/data.jsonl" in status["failure"]["message"]
    events = wait_for("events", lambda: jobs.events("signed"))
    texts = {
        "status": json.dumps(status),
        "events": json.dumps(events),
        "metrics": operator.metrics(),
        "the operator's log": operator.log(),
        **{f"{verb} before": text for verb, text in during.items()},
        "describe": newcomer.types("tpujob describe signed"),
        "get": newcomer.types("tpujob get signed"),
        "get -o wide": newcomer.types("kubectl get ttj signed -o wide"),
    }
    assert [place for place, text in texts.items() if CANARY in text] == []


def kubeconfig(jobs: Jobs, folder: Path) -> Path:
    """A file that names the namespace."""
    config = json.loads(jobs.plane.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = jobs.namespace
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return file
