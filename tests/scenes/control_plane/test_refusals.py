"""What keeps a JobSet or its Jobs from being made is told, in the words of whoever refuses."""

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tools.localcluster.api import Object
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@pytest.fixture
def absent_webhook(jobs: Jobs) -> str:
    """A webhook for the namespace's JobSets whose server is not there."""
    name = f"absent-{jobs.namespace}"
    webhook = {
        "name": "absent.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [
            {
                "apiGroups": ["jobset.x-k8s.io"],
                "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["jobsets"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": jobs.namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 2,
    }
    jobs.api.create(WEBHOOKS, {"metadata": {"name": name}, "webhooks": [webhook]})
    return f"{WEBHOOKS}/{name}"


def test_webhook_that_is_down_is_named(jobs: Jobs, operator: OperatorProcess, absent_webhook: str) -> None:
    jobs.create("llama")
    status = jobs.wait("llama", "the refusal", lambda status: _blocked(status).get("status") == "True")
    assert _blocked(status)["reason"] == "JobSetRefused"
    assert 'failed calling webhook "absent.example.com"' in status["message"]
    assert "are the pods of that webhook well" in status["message"]
    jobs.api.delete(absent_webhook)
    jobs.wait_phase("llama", "Starting")


def test_jobs_that_are_refused_are_told_in_jobset_s_words(jobs: Jobs, operator: OperatorProcess) -> None:
    quotas = f"/api/v1/namespaces/{jobs.namespace}/resourcequotas"
    jobs.api.create(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"count/jobs.batch": "0"}}})
    wait_for("the quota to count", lambda: jobs.api.get(f"{quotas}/none").get("status", {}).get("hard"))
    jobs.create("llama")
    status = jobs.wait("llama", "the refusal", lambda status: _blocked(status).get("status") == "True")
    assert status["phase"] == "Starting"
    assert _blocked(status)["reason"] == "JobsRefused"
    assert "exceeded quota: none" in _blocked(status)["message"]


def _blocked(status: Object) -> Object:
    found: Object = next((c for c in status.get("conditions", []) if c["type"] == "Blocked"), {})
    return found
