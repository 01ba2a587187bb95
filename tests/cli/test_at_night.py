"""From a failed job to its cause: what describe, logs and submit say when pods, rights or the operator are missing."""

from datetime import UTC, datetime

import pytest
from kubernetes.config import kube_config
from typer.testing import CliRunner

from tpujob.cluster import client, watch
from tpujob.cluster.describe import describe
from tpujob.cluster.logs import gcloud_command
from tpujob.job.questions.checkpoints import attempt_lines
from tpujob.main import OTHER_WORDS, app

NOW = datetime(2030, 1, 1, tzinfo=UTC)
JOB = {"metadata": {"name": "llama", "creationTimestamp": "2029-12-31T00:00:00Z"}, "spec": {"accelerator": "v5e-16"}}


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        (
            {"restarts": {"charged": 3}, "step": 130, "lastCheckpointStep": 100},
            [
                "  crashes since the last progress: 3 of 3 allowed",
                "  a retry goes on from step 100: steps 101 to 130 are done again",
            ],
        ),
        ({"step": 100, "lastCheckpointStep": 100}, ["  a retry goes on from step 100: nothing is lost"]),
        ({"step": 7}, ["  a retry starts from step 0: no checkpoint was committed"]),
        ({}, []),
    ],
    ids=["crashes", "saved", "never saved", "never started"],
)
def test_a_failed_job_says_what_a_retry_loses(status, lines):
    job = {**JOB, "spec": {**JOB["spec"], "restarts": {"crashes": 3}}, "status": {"phase": "Failed", **status}}
    said = list(describe(job, [], [], NOW))
    assert [line for line in said if "retry " in line or "crashes since" in line][: len(lines)] == lines
    assert "Its logs: tpujob logs llama. How each attempt ended: tpujob logs llama --attempts" in said


def test_the_line_for_cloud_logging_is_complete():
    command = gcloud_command(JOB, "team", "gke_my-project_us-east5-a_tpus")
    for part in (
        'resource.labels.namespace_name="team"',
        'resource.labels.pod_name=~"^llama-"',
        'timestamp>="2029-12-31T00:00:00Z"',
        'resource.labels.cluster_name="tpus"',
        "--project=my-project",
    ):
        assert part in command
    assert "--project" not in gcloud_command(JOB, "team", "kind-here")


def test_attempts_are_told_with_their_ends():
    found = {
        "directory": "gs://b/run",
        "attempts": [
            {
                "file": "attempts/20300101T000000Z-9f3a.json",
                "attempt": "1.0-9f3a",
                "exit_code": 78,
                "step": 3,
                "steps": 9,
                "committed_step": 2,
                "message": "spec.trainer.data.path: gone",
            },
            {"file": "attempts/20300101T010000Z-aaaa.json", "attempt": "1.1-aaaa", "exit_code": None},
        ],
    }
    assert list(attempt_lines(found)) == [
        "attempt 1.0-9f3a, started 20300101T000000Z: exit code 78, configuration wrong; step 3 of 9; last checkpoint 2",
        "  spec.trainer.data.path: gone",
        "attempt 1.1-aaaa, started 20300101T010000Z: runs, or was killed",
    ]
    assert list(attempt_lines({"directory": "d", "attempts": []})) == ["d: no attempt has left a file"]


CONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: there, context: {cluster: c, user: u, namespace: team}}]
"""


def test_a_named_context_needs_no_current_one(tmp_path, monkeypatch):
    (tmp_path / "config").write_text(CONFIG)
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    cluster = client.Cluster.connect(context="there")
    assert (cluster.namespace, cluster.context) == ("team", "there")


def test_without_a_cluster_the_runs_of_this_machine_are_named(tmp_path, monkeypatch):
    (tmp_path / "config").write_text("contexts: []")
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    (tmp_path / ".tpujob" / "default" / "mine" / "logs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["logs", "mine"]).stderr
    assert (
        "Runs on this machine: `tpujob get --local` lists them, `tpujob logs --local mine` shows a log (mine)" in said
    )


def test_a_machine_without_a_kubeconfig_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["get"]).stderr
    assert "no cluster: this machine has no kubeconfig; set KUBECONFIG" in said
    assert "`tpujob run` needs no cluster" in said


@pytest.mark.parametrize(("word", "verb"), OTHER_WORDS.items())
def test_what_people_type_for_a_verb_is_answered_with_it(word, verb):
    done = CliRunner().invoke(app, [word])
    assert done.exit_code == 2
    assert f"Did you mean '{verb}'?" in done.stderr


@pytest.mark.parametrize(
    ("phases", "is_seen"), [(["Pending"], True), ([None, None, "Pending"], True), ([None] * 9, False)]
)
def test_a_job_that_no_operator_looks_at_is_known_after_its_time(phases, is_seen):
    now = [0.0]
    left = iter(phases)

    def wait(seconds: float) -> None:
        now[0] += seconds

    def look() -> dict:
        return {"status": {"phase": next(left)}}

    assert watch.is_seen_within(look, seconds=1.0, wait=wait, clock=lambda: now[0]) is is_seen
