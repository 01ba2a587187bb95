"""What the cluster verbs say, from objects as the API server gives them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tpujob.cluster import logs, table, watch
from tpujob.cluster.client import UnreachableError
from tpujob.cluster.describe import describe
from tpujob.cluster.doctor import (
    ADDONS,
    addon_version,
    bucket_access,
    buckets,
    images,
    kubernetes_version,
    nodes,
    operator,
    queues,
    quotas,
)
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.status import Status

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


FIELDS = frozenset(Status.model_json_schema()["properties"])


def job(**status: object) -> dict:
    assert status.keys() <= FIELDS, "no status has such a field"
    return {
        "metadata": {"name": "llama", "namespace": "team", "creationTimestamp": "2030-01-01T10:50:00Z"},
        "spec": {"accelerator": "v5e-16", "slices": 2},
        "status": status,
    }


def pod(slice_index: int, host: int, *, failed_at: str | None = None, waiting: dict | None = None) -> dict:
    state: dict = (
        {"terminated": {"exitCode": 1, "finishedAt": failed_at}}
        if failed_at
        else {"waiting": waiting}
        if waiting
        else {"running": {}}
    )
    labels = {"jobset.sigs.k8s.io/job-index": str(slice_index), "batch.kubernetes.io/job-completion-index": str(host)}
    return {
        "metadata": {"name": f"llama-w-{slice_index}-{host}", "labels": labels},
        "status": {"containerStatuses": [{"state": state}]},
    }


@pytest.mark.parametrize(
    ("since", "text"),
    [
        (None, ""),
        ("2030-01-01T11:59:15Z", "45s"),
        ("2030-01-01T11:48:00Z", "12m"),
        ("2030-01-01T08:50:00Z", "3h10m"),
        ("2029-12-30T08:00:00Z", "2d4h"),
    ],
)
def test_ages_are_short(since: str | None, text: str) -> None:
    assert table.age(since, NOW) == text


def test_the_table_is_aligned_and_leaves_the_unknown_empty() -> None:
    known = job(
        phase="Running",
        hosts=8,
        hostsReady=8,
        step=10,
        steps=20,
        progress={"loss": 2.5, "tokensPerSecond": 1e6},
        restarts={"total": 1},
    )
    lines = table.render([table.COLUMNS, *table.rows([known, job()], NOW)])
    assert lines[1].split() == ["llama", "2xv5e-16", "Running", "8/8", "10/20", "1,000,000", "2.500", "1", "70m"]
    assert lines[2].split() == ["llama", "2xv5e-16", "0", "70m"]
    assert lines[0].index("PHASE") == lines[1].index("Running")


def test_a_waiting_job_says_what_for() -> None:
    conditions = [{"type": "Blocked", "status": "True", "reason": "NoPoolFits", "message": "Make a pool for v5e-16."}]
    told = list(describe(job(phase="WaitingForCapacity", message="No node.", conditions=conditions), [], [], NOW))
    assert told[0] == "team/llama: WaitingForCapacity. 2 slices of v5e-16, created 70m ago."
    assert told[1] == "  No node."
    assert "  Blocked (NoPoolFits): Make a pool for v5e-16." in told


def test_pods_that_wait_for_the_same_are_told_once() -> None:
    why = {"reason": "ImagePullBackOff", "message": "not found"}
    told = list(describe(job(), [pod(0, 0, waiting=why), pod(0, 1, waiting=why)], [], NOW))
    assert "  llama-w-0-0 and 1 more cannot start: ImagePullBackOff: not found" in told


def test_the_host_that_failed_first_comes_first() -> None:
    pods = [pod(0, 0, failed_at="T2"), pod(0, 1), pod(1, 0, failed_at="T1")]
    assert [logs.place(p) for p in logs.chosen(pods, slice_index=None, host=None)] == [(1, 0), (0, 0), (0, 1)]
    assert [logs.place(p) for p in logs.chosen(pods, slice_index=0, host=1)] == [(0, 1)]


def test_merged_logs_are_in_the_order_of_time() -> None:
    merged = logs.merge([("a | ", iter(["1 first", "4 last"])), ("b | ", iter(["2 second", "3 third"]))])
    assert list(merged) == ["a | first", "b | second", "b | third", "a | last"]


def test_following_tells_changes_once_and_ends() -> None:
    phases = iter(["Queued", "Queued", "Running", "Succeeded"])
    lines = watch.follow(
        lambda: job(phase=next(phases), message="words"), until=watch.has_ended, wait=lambda _: None, clock=lambda: 0.0
    )
    assert list(lines) == ["Queued: words", "Running", "Succeeded: words"]


def test_following_outlives_a_cluster_that_does_not_answer() -> None:
    answers = iter([job(phase="Running"), UnreachableError("gone"), UnreachableError("gone"), job(phase="Succeeded")])

    def look() -> dict[str, Any]:
        answer: Any = next(answers)
        if isinstance(answer, UnreachableError):
            raise answer
        return answer

    lines = list(watch.follow(look, until=watch.has_ended, wait=lambda _: None, clock=lambda: 0.0))
    assert [line.partition(";")[0] for line in lines] == ["Running", "the cluster does not answer", "Succeeded"]


def test_following_ends_with_a_cluster_that_is_gone() -> None:
    now = iter([0.0, 1.0, watch.OUTAGE_SECONDS])

    def look() -> dict[str, Any]:
        raise UnreachableError("gone")

    lines = watch.follow(look, until=watch.has_ended, wait=lambda _: None, clock=lambda: next(now))
    assert next(lines).startswith("the cluster does not answer")
    with pytest.raises(UnreachableError, match="gone"):
        next(lines)


def manager(image: str) -> dict[str, Any]:
    pod = {"containers": [{"image": "registry/rbac-proxy:v9"}, {"image": image}]}
    return {"metadata": {"namespace": "s", "name": "m"}, "spec": {"template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("result", "verdict", "words"),
    [
        (operator(None), "note", "may not list"),
        (operator([]), "missing", "no Deployment"),
        (
            operator([{"metadata": {"namespace": "s", "name": "t"}, "status": {"readyReplicas": 2}}]),
            "ok",
            "s/t, 2 ready",
        ),
        (operator([{"metadata": {"namespace": "s", "name": "t"}}]), "missing", "no ready pod"),
        (kubernetes_version("v1.35.4-gke.12"), "ok", "is v1.35.4-gke.12"),
        (kubernetes_version("v1.30.9"), "note", "needs 1.31 or newer: the chart does not install"),
        (kubernetes_version(""), "note", "no number"),
        (
            *addon_version(ADDONS[0], [manager("registry.k8s.io/jobset/jobset:v0.12.0@sha256:1")]),
            "ok",
            "s/m is v0.12.0",
        ),
        (*addon_version(ADDONS[0], [manager("mirror/jobset:v0.11.1")]), "note", "s/m is v0.11.1; tpujob needs 0.12"),
        (*addon_version(ADDONS[1], [manager("k/kueue:v0.14.8"), manager("k/kueueviz:v1")]), "note", "needs 0.15"),
        (queues(None), "note", "not installed"),
        (queues([{"metadata": {"name": "team-a"}}]), "ok", "team-a"),
        (bucket_access([]), "note", "no ServiceAccount"),
        (next(nodes([])), "note", "none at present"),
        (next(quotas([{"metadata": {"name": "q"}, "status": {"hard": {"pods": "5"}}}])), "note", "0 of 5 pods"),
    ],
)
def test_the_doctor_judges_what_it_sees(result, verdict: str, words: str) -> None:
    assert result.verdict == verdict
    assert words in result.found


def with_bucket(**status: object) -> dict[str, object]:
    assert status.keys() <= FIELDS, "no status has such a field"
    return {"metadata": {"name": "a"}, "spec": {"checkpointDir": "gs://b/a"}, "status": status}


@pytest.mark.parametrize(
    ("job", "found"),
    [
        (with_bucket(), []),
        (with_bucket(lastCheckpointStep=40), [("ok", "default saved step 40 of a to gs://b/a")]),
        (
            with_bucket(failure={"exitCode": 77, "message": "no permission"}),
            [("note", "pods of a, gs://b/a: no permission")],
        ),
        (with_bucket(failure={"exitCode": 1, "message": "crash"}), []),
        (
            with_bucket(
                lastCheckpointStep=40, conditions=[{"type": "CheckpointHealthy", "status": "False", "message": "403"}]
            ),
            [("note", "pods of a, gs://b/a: 403")],
        ),
        ({**with_bucket(lastCheckpointStep=40), "spec": {"checkpointDir": "/mnt/a"}}, []),
        ({"metadata": {"name": "a"}, "spec": {}}, []),
    ],
    ids=["no word yet", "saved", "refused", "another failure", "saves fail now", "a volume", "no directory"],
)
def test_what_pods_say_of_their_bucket_is_evidence(job: dict[str, object], found: list[tuple[str, str]]) -> None:
    assert [(result.verdict, result.found) for result in buckets([job])] == found


def test_an_image_that_does_not_start_is_told_once() -> None:
    def pod(name: str, reason: str) -> dict[str, object]:
        state = {"waiting": {"reason": reason, "message": "not found"}}
        statuses = [{"image": "a/b:1", "state": state}]
        return {"metadata": {"name": name}, "status": {"containerStatuses": statuses}}

    pods = [pod("x", "ContainerCreating"), pod("y", "ErrImagePull"), pod("z", "ImagePullBackOff")]
    (result,) = images(pods)
    assert result.found == "a/b:1 does not start: y: ErrImagePull: not found"
    assert "imagePullSecrets" in result.advice


def test_tpu_nodes_are_counted_by_kind() -> None:
    labels = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "4x4"}
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"google.com/tpu": "4"}}}
    broken = {"metadata": {"name": "b", "labels": labels}, "status": {}}
    found = list(nodes([node, node, broken]))
    assert found[0].found == "3 of tpu-v6e-slice, topology 4x4"
    assert "b offer no google.com/tpu" in found[1].found


def test_units_of_workers_are_described() -> None:
    units = {"total": 1200, "done": 400, "claimed": 8, "left": 792, "rowsPerSecond": 70.2, "failures": {"storage": 3}}
    text = "\n".join(describe(job(phase="Running", progress={"units": units}), [], [], NOW))
    assert "  units: 400 of 1,200 done, 8 claimed, 792 left, 70.2 rows/s" in text
    assert "by cause: storage 3" in text


def test_what_is_avoided_is_described() -> None:
    entry = {"node": "n1", "failures": 2, "avoidedLabel": "kubernetes.io/hostname", "avoidedValue": "n1"}
    told = list(describe(job(phase="Running", nodeFailures=[entry, {"node": "n2", "failures": 1}]), [], [], NOW))
    assert [line for line in told if "avoids" in line] == [
        "  avoids: kubernetes.io/hostname=n1, after 2 crashes on node n1"
    ]


def test_slices_that_are_missing_are_described() -> None:
    missing = {
        "type": "FullSize",
        "status": "False",
        "reason": "SlicesMissing",
        "message": "The job has 2 of 4 slices.",
    }
    whole = {"type": "FullSize", "status": "True", "reason": "AllSlices", "message": "The job has all its 4 slices."}
    told = [list(describe(job(phase="Running", conditions=[each]), [], [], NOW)) for each in (missing, whole)]
    expected = "  FullSize (SlicesMissing): The job has 2 of 4 slices."
    assert [expected in lines for lines in told] == [True, False]
    assert not any("AllSlices" in line for line in told[1])


def test_the_last_checkpoint_is_shown_as_the_operator_writes_it() -> None:
    saved = Status(phase=Phase.RUNNING, step=45, last_checkpoint_step=40, last_checkpoint_time=NOW).as_stored()
    assert "  last checkpoint: step 40, 0s ago" in list(describe(job(**saved), [], [], NOW))
    assert "40 (0s)" in table.rows([job(**saved)], NOW)[0]
    lines = watch.follow(lambda: job(**saved), until=lambda _: False, wait=lambda _: None, clock=lambda: 0.0)
    assert [next(lines), next(lines)] == ["Running", "step 45 · checkpoint 40"]


@pytest.mark.parametrize(
    ("status", "is_told"),
    [({"step": 5}, True), ({"step": 0}, False), ({"steps": 9}, False), ({"steps": 9, "restarts": {"total": 1}}, True)],
    ids=["after steps", "before them", "before a report", "a restart without a checkpoint"],
)
def test_lack_of_a_checkpoint_is_told_once_there_is_something_to_lose(status: dict, is_told: bool) -> None:
    told = list(describe(job(phase="Restarting", **status), [], [], NOW))
    assert ("  last checkpoint: none yet" in told) is is_told


def test_hosts_that_the_trainer_names_are_described() -> None:
    hosts = {"progress": {"stragglerMessage": "process 1 on host b (training)", "preflightMessage": "host c is slow"}}
    in_place = {"restarts": {"inThesePods": 2, "inPlaceCause": "process 1 ended with exit code 137"}}
    text = "\n".join(describe(job(phase="Running", **hosts, **in_place), [], [], NOW))
    assert "behind the others: process 1 on host b (training)" in text
    assert "slow or odd hosts, found before the first step: host c is slow" in text
    assert "2 restarts in the same pods; the last after process 1 ended with exit code 137" in text


def test_restarts_in_the_same_pods_are_described() -> None:
    first = {"attempt": 0, "number": 1, "cause": "Crash", "host": "slice 0 host 1", "exitCode": 137, "message": "a\nb"}
    second = {"attempt": 0, "number": 2, "cause": "Unexplained", "step": 40, "nextStep": 20, "seconds": 12}
    status = {"restarts": {"total": 2, "unexplained": 1, "inPlace": 2, "inPlaceAttempts": [first, second]}}
    text = "\n".join(describe(job(phase="Running", **status), [], [], NOW))
    assert (
        """\
  restarts: 2 (unexplained 1, in the same pods 2)
  the last restarts in the same pods:
    attempt 0.0: crash of slice 0 host 1, exit code 137, killed by SIGKILL
      a
      b
    attempt 0.1: unexplained; at step 40; on from step 20; 12 s without training"""
        in text
    )


def test_a_job_of_another_controller_is_said_to_be_so() -> None:
    theirs = job(phase="Running")
    theirs["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    assert table.rows([theirs], NOW)[0][2] == "Running (by kueue.x-k8s.io/multikueue)"
    assert "  managed by: kueue.x-k8s.io/multikueue, which writes this status" in "\n".join(
        describe(theirs, [], [], NOW)
    )


def test_a_job_that_its_controller_has_not_seen_is_no_question_to_this_operator() -> None:
    theirs = job()
    theirs["spec"]["managedBy"] = "example.com/other"
    text = "\n".join(describe(theirs, [], [], NOW))
    assert "team/llama: not seen by example.com/other yet." in text
    assert "tpujob doctor" not in text
    theirs["spec"]["managedBy"] = "tpujob.dev/operator"
    assert "managed by" not in (text := "\n".join(describe(theirs, [], [], NOW)))
    assert "tpujob doctor" in text
