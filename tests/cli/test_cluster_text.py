"""What the cluster verbs say, from objects as the API server gives them."""

from datetime import UTC, datetime

import pytest

from tpujob.cluster import logs, table, watch
from tpujob.cluster.describe import describe
from tpujob.cluster.doctor import bucket_access, nodes, operator, queues, quotas

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


def job(**status: object) -> dict:
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
    known = job(phase="Running", hosts=8, hostsReady=8, step=10, steps=20, loss=2.5, tokensPerSecond=1e6, restarts=1)
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


@pytest.mark.parametrize(
    ("finding", "verdict", "words"),
    [
        (operator(None), "note", "may not list"),
        (operator([]), "missing", "no Deployment"),
        (
            operator([{"metadata": {"namespace": "s", "name": "t"}, "status": {"readyReplicas": 2}}]),
            "ok",
            "s/t, 2 ready",
        ),
        (operator([{"metadata": {"namespace": "s", "name": "t"}}]), "missing", "no ready pod"),
        (queues(None), "note", "not installed"),
        (queues([{"metadata": {"name": "team-a"}}]), "ok", "team-a"),
        (bucket_access([]), "note", "no ServiceAccount"),
        (next(nodes([])), "note", "none at present"),
        (next(quotas([{"metadata": {"name": "q"}, "status": {"hard": {"pods": "5"}}}])), "note", "0 of 5 pods"),
    ],
)
def test_the_doctor_judges_what_it_sees(finding, verdict: str, words: str) -> None:
    assert finding.verdict == verdict
    assert words in finding.found


def test_tpu_nodes_are_counted_by_kind() -> None:
    labels = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "4x4"}
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"google.com/tpu": "4"}}}
    broken = {"metadata": {"name": "b", "labels": labels}, "status": {}}
    found = list(nodes([node, node, broken]))
    assert found[0].found == "3 of tpu-v6e-slice, topology 4x4"
    assert "b offer no google.com/tpu" in found[1].found
