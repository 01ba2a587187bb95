"""What is read off pods and JobSets."""

from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import JOBSET_UID, NOW, pod, terminated
from tests.statuses import grouped
from tpujob_contract import kubernetes_names
from tpujob_contract.reports.termination_message import NOT_ASKED
from tpujob_operator.decide.causes.first_failure import first_of
from tpujob_operator.observe.cache import PodCache
from tpujob_operator.observe.from_objects import (
    ended_by_deletion,
    ended_from_pod,
    host_from_pod,
    hosts_of,
    jobset_state,
)
from tpujob_operator.observe.terminations import MOST_ATTEMPTS, MOST_PER_ATTEMPT, WHOLE_MESSAGES, TerminationCache
from tpujob_resource.models.stored import read_status
from tpujob_resource.models.times import format_time

KEY = ("team", "llama")


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


HOSTS = {
    # name: (pod, expected fields)
    "ready": (pod(), {"ready": True, "succeeded": False, "waiting_reason": None}),
    "running, not ready": (pod(ready=False), {"ready": False}),
    "finished": (pod(ready=False, phase="Succeeded", state=terminated(0)), {"succeeded": True}),
    "being created": (pod(ready=False, state=waiting("ContainerCreating")), {"waiting_reason": None}),
    "no image": (
        pod(ready=False, state=waiting("ImagePullBackOff", "back-off")),
        {"waiting_reason": "ImagePullBackOff", "waiting_message": "back-off"},
    ),
    "no image for the init container": (
        pod(
            ready=False,
            state=waiting("PodInitializing"),
            initContainerStatuses=[{"name": "launcher", "state": waiting("ErrImagePull", "denied")}],
        ),
        {"waiting_reason": None},
    ),
    "before any container": (
        pod(
            ready=False,
            containerStatuses=[],
            initContainerStatuses=[{"name": "launcher", "state": waiting("ErrImagePull", "denied")}],
        ),
        {"waiting_reason": "ErrImagePull", "waiting_message": "denied"},
    ),
    "no node": (
        pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}]),
        {"ready": False, "unschedulable": "0/3"},
    ),
    "position": (pod(1, attempt=3, podIP="10.0.0.1"), {"host_index": 1, "attempt": 3, "ip": "10.0.0.1"}),
}


@pytest.mark.parametrize(("found", "expected"), HOSTS.values(), ids=HOSTS.keys())
def test_host_is_read_off_its_pod(found: dict[str, Any], expected: dict[str, Any]) -> None:
    host = host_from_pod(found)
    assert {name: getattr(host, name) for name in expected} == expected


# As TerminatePod writes it of a container that never had a state (kubernetes/kubernetes:pkg/kubelet/status).
NOT_FOUND = {
    "terminated": {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
        "startedAt": None,
        "finishedAt": None,
    }
}
ENDS = {
    # name: (pod, exit code and was_asked; None: no failure)
    "runs": (pod(), None),
    "finished": (pod(state=terminated(0)), None),
    "crashed": (pod(state=terminated(1)), (1, False)),
    "crashed, deleted later": (pod(state=terminated(1, after=0), deleted_after=3), (1, False)),
    "deleted, then ended": (pod(state=terminated(143, after=5), deleted_after=3), (143, True)),
    "deleted, and killed at the end of its grace": (pod(state=terminated(137, after=33), deleted_after=3), (137, True)),
    "init container failed": (
        pod(
            state=waiting("PodInitializing"),
            phase="Failed",
            initContainerStatuses=[{"name": "launcher", "state": terminated(1, message="no space")}],
        ),
        (1, False),
    ),
    "evicted before its container ran": (
        pod(
            containerStatuses=[],
            phase="Failed",
            reason="Evicted",
            conditions=[{"type": "DisruptionTarget", "status": "True"}],
        ),
        (137, True),
    ),
    "refused by its node": (
        pod(
            containerStatuses=[],
            phase="Failed",
            reason="UnexpectedAdmissionError",
            message="Allocate failed: no healthy TPU",
            startTime=format_time(NOW),
        ),
        (137, True),
    ),
    "deleted before its container ran": (
        pod(containerStatuses=[], phase="Failed", startTime=format_time(NOW), deleted_after=3),
        (137, True),
    ),
    "deleted, and its container was not found": (
        pod(state=NOT_FOUND, phase="Failed", startTime=format_time(NOW), deleted_after=3),
        (137, True),
    ),
    "container not found": (pod(state=NOT_FOUND, phase="Failed", startTime=format_time(NOW)), (137, False)),
    "failed in a way nobody knows": (
        pod(containerStatuses=[], phase="Failed", startTime=format_time(NOW)),
        (137, False),
    ),
    "preempted": (
        pod(state=terminated(143), conditions=[{"type": "DisruptionTarget", "status": "True"}]),
        (143, True),
    ),
}


@pytest.mark.parametrize(("found", "expected"), ENDS.values(), ids=ENDS.keys())
def test_end_is_read_off_its_pod(found: dict[str, Any], expected: tuple[int, bool] | None) -> None:
    end = ended_from_pod(found)
    assert (None if end is None else (end.exit_code, end.was_asked)) == expected


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        ("", "OOMKilled", "OOMKilled"),
        ("step 7\n", "OOMKilled", "step 7\nOOMKilled"),
        ("step 7\n", "Error", "step 7"),
        ("step 7\n", None, "step 7"),
        ("", "Error", "Error"),
        (None, None, ""),
    ],
)
def test_reason_is_told_where_it_says_more(message: str | None, reason: str | None, words: str) -> None:
    state = {"terminated": {"exitCode": 137, "message": message, "reason": reason, "finishedAt": None}}
    end = ended_from_pod(pod(state=state))
    assert end is not None
    assert end.message == words


def manifest(*, conditions: list[dict[str, Any]] | None = None, owner: str | None = "TpuTrainingJob") -> dict[str, Any]:
    owners = [{"kind": owner, "uid": "job-uid", "controller": True}] if owner else []
    jobs = [{"name": "w", "replicas": 3, "template": {"spec": {"parallelism": 4}}}]
    return {
        "metadata": {"name": "llama", "uid": JOBSET_UID, "ownerReferences": owners},
        "spec": {"suspend": True, "replicatedJobs": jobs},
        "status": {"conditions": conditions or [], "restarts": 2},
    }


def test_jobset_is_read() -> None:
    state = jobset_state(manifest())
    assert (state.owner_uid, state.suspended, state.outcome) == ("job-uid", True, None)
    assert (state.restarts, state.hosts) == (2, 12)


@pytest.mark.parametrize(
    ("kind", "status", "outcome"),
    [
        ("Completed", "True", "Completed"),
        ("Failed", "True", "Failed"),
        ("Failed", "False", None),
        ("Suspended", "True", None),
    ],
)
def test_outcome_is_a_true_condition(kind: str, status: str, outcome: str | None) -> None:
    state = jobset_state(manifest(conditions=[{"type": kind, "status": status, "reason": "x"}]))
    assert state.outcome == outcome


def test_other_owners_do_not_count() -> None:
    assert jobset_state(manifest(owner="Workflow")).owner_uid is None


def test_evidence_outlives_the_pod_and_knows_its_jobset() -> None:
    evidence = TerminationCache()
    assert evidence.note(KEY, pod(0, state=terminated(1)))
    assert not evidence.note(KEY, pod(1))
    evidence.note(KEY, pod(1, state=terminated(77), jobset_uid="earlier"))
    (end,) = evidence.of(KEY, JOBSET_UID)
    assert (end.host_index, end.exit_code, end.finished_at) == (0, 1, NOW)
    evidence.forget(KEY)
    assert evidence.of(KEY, JOBSET_UID) == ()


def test_first_word_about_an_end_counts() -> None:
    evidence = TerminationCache()
    assert evidence.note(KEY, pod(0, state=terminated(1)))
    assert not evidence.note(KEY, pod(0, state=terminated(1), deleted_after=-1))
    (end,) = evidence.of(KEY, JOBSET_UID)
    assert not end.was_asked


@pytest.mark.parametrize(
    ("message", "deleted_after", "was_asked"),
    [
        (f"exit code 75\n{NOT_ASKED}", 0, False),
        (f"exit code 75\n{NOT_ASKED}", -1, True),
        (f"exit code 75\n{NOT_ASKED}", 1, False),
        ("exit code 75\ntold to stop by SIGTERM", 0, True),
        ("the program's own words", 0, True),
    ],
)
def test_within_a_second_the_launcher_says_whether_the_end_or_the_deletion_came_first(
    message: str, deleted_after: float, was_asked: bool
) -> None:
    end = ended_from_pod(pod(0, state=terminated(75, message=message), deleted_after=deleted_after))
    assert end is not None
    assert end.was_asked is was_asked


def test_nobody_knows_in_which_version_a_pod_ended_that_was_not_seen_before() -> None:
    def seen(*states: dict[str, Any]) -> int | None:
        evidence = TerminationCache()
        cache = PodCache(lambda _: None, evidence)
        for version, state in enumerate(states, start=7):
            found = pod(0, **state)
            found["metadata"] |= {"resourceVersion": str(version)}
            found["metadata"]["labels"]["tpujob.dev/job-name"] = KEY[1]
            cache.changed(found, deleted=False)
        (end,) = evidence.of(("team", KEY[1]), JOBSET_UID)
        return end.version

    assert seen({}, {"state": terminated(75)}, {"state": terminated(75), "deleted_after": 3}) == 8
    assert seen({"state": terminated(75)}) is None


@pytest.mark.parametrize(
    ("finished_after", "was_asked"),
    [(-600, True), (-2, False), (2, True)],
    ids=["by a clock that is behind", "which the kubelet tells late", "after it was asked"],
)
def test_pod_that_was_seen_to_be_asked_to_stop_while_it_ran_was_asked(finished_after: float, was_asked: bool) -> None:
    evidence = TerminationCache()
    evidence.note(KEY, pod(0, deleted_after=0))
    evidence.note(KEY, pod(0, state=terminated(137, after=finished_after), deleted_after=0))
    (end,) = evidence.of(KEY, JOBSET_UID)
    assert end.was_asked is was_asked


@pytest.mark.parametrize("leads", [True, False], ids=["it resumes", "it reads that another has resumed"])
def test_pods_that_a_pause_has_stopped_say_nothing_about_the_next_start(leads: bool) -> None:
    """JobSet goes on with the attempt that it suspended, so both starts have its number."""
    evidence, paused = TerminationCache(), {"internal.jobSetUid": JOBSET_UID, "internal.bookedRestarts": 2}
    evidence.note(KEY, pod(0, state=terminated(1), attempt=1))
    evidence.note_job(KEY, read_status(grouped({**paused, "restarts.nextTime": format_time(NOW)})), deleted=False)
    evidence.note(KEY, pod(0, state=terminated(75, after=1), attempt=2, deleted_after=0))
    evidence.note(KEY, pod(1, attempt=2, deleted_after=0))
    assert [left.host_index for left in evidence.leaving(KEY, JOBSET_UID)] == [1]
    if leads:
        evidence.forget_stopped(KEY, JOBSET_UID, 2)
    else:
        evidence.note_job(KEY, read_status(grouped(paused)), deleted=False)
    evidence.note(KEY, pod(1, state=terminated(75, after=9), attempt=2, deleted_after=0))
    assert [end.attempt for end in evidence.of(KEY, JOBSET_UID)] == [1]
    assert evidence.leaving(KEY, JOBSET_UID) == ()


def test_pods_of_a_suspended_start_say_nothing_about_the_next_one() -> None:
    """The Job controller keeps ended pods; their last events come when JobSet has resumed the attempt in others."""
    evidence = TerminationCache()
    ends = {0: terminated(137), 1: terminated(143, after=2), 2: None}
    for index, state in ends.items():
        evidence.note(KEY, pod(index, state=state, deleted_after=1))
    assert len(evidence.of(KEY, JOBSET_UID)) + len(evidence.leaving(KEY, JOBSET_UID)) == len(ends)
    evidence.forget_start(KEY)
    for index, state in ends.items():
        assert not evidence.note(KEY, pod(index, state=state, deleted_after=1))
        assert not evidence.note(KEY, pod(index, state=state, deleted_after=1), deleted=True)
    assert (evidence.of(KEY, JOBSET_UID), evidence.leaving(KEY, JOBSET_UID)) == ((), ())


def test_only_the_newest_attempts_are_kept() -> None:
    evidence = TerminationCache()
    for attempt in range(MOST_ATTEMPTS + 3):
        evidence.note(KEY, pod(0, state=terminated(1), attempt=attempt))
    attempts = [end.attempt for end in evidence.of(KEY, JOBSET_UID)]
    assert (len(attempts), attempts[0], attempts[-1]) == (MOST_ATTEMPTS, 3, MOST_ATTEMPTS + 2)


def test_the_first_end_of_very_many_hosts_is_kept_whole() -> None:
    evidence = TerminationCache()
    for index in range(MOST_PER_ATTEMPT + 3):
        evidence.note(KEY, pod(index, state=terminated(1, message="x" * 999)))
    ends = evidence.of(KEY, JOBSET_UID)
    assert (len(ends), ends[0].host_index, len(ends[0].message)) == (MOST_PER_ATTEMPT, 0, 999)
    assert len(ends[WHOLE_MESSAGES].message) < 999


def test_the_many_that_end_with_one_host_are_not_taken_for_the_first() -> None:
    evidence = TerminationCache()
    named = "lost process 99: its connection broke\n" + "x" * 999
    for index in range(100):
        said, after = (named, 0) if index < 99 else ("Killed", 5)
        evidence.note(KEY, pod(index, state=terminated(1, message=said, after=after)))
    ends = evidence.of(KEY, JOBSET_UID)
    first = first_of(ends)
    assert first is not None
    assert first.host_index == 99
    assert len(ends[98].message) == 200


@pytest.mark.parametrize(
    ("status", "deleted", "attempts"),
    [
        ({"internal.jobSetUid": JOBSET_UID}, False, [0, 1, 2, 3]),
        ({"internal.jobSetUid": JOBSET_UID, "internal.bookedRestarts": 3}, False, [2, 3]),
        ({"internal.jobSetUid": "another", "internal.bookedRestarts": 3}, False, [0, 1, 2, 3]),
        ({"internal.jobSetUid": JOBSET_UID, "phase": "Failed"}, False, []),
        ({}, True, []),
    ],
    ids=["nothing is judged", "two are over", "of another incarnation", "failed", "deleted"],
)
def test_watched_jobs_tell_what_is_over(status: dict[str, Any], deleted: bool, attempts: list[int]) -> None:
    evidence = TerminationCache()
    for attempt in range(4):
        evidence.note(KEY, pod(0, state=terminated(1), attempt=attempt))
    evidence.note_job(KEY, read_status(grouped(status)), deleted=deleted)
    assert [end.attempt for end in evidence.of(KEY, JOBSET_UID)] == attempts


def test_jobs_that_no_list_shows_are_dropped() -> None:
    evidence = TerminationCache()
    for key in (KEY, ("team", "gone")):
        evidence.note(key, pod(0, state=terminated(1)))
    evidence.keep_only({KEY})
    assert evidence.of(KEY, JOBSET_UID)
    assert not evidence.of(("team", "gone"), JOBSET_UID)


def test_list_of_a_namespace_says_nothing_of_others() -> None:
    evidence, other = TerminationCache(), ("other", "llama")
    for key in (KEY, other):
        evidence.note(key, pod(0, state=terminated(1)))
    evidence.keep_only(set(), KEY[0])
    assert not evidence.of(KEY, JOBSET_UID)
    assert evidence.of(other, JOBSET_UID)


def test_last_report_is_process_0_s_and_goes_with_the_next() -> None:
    parting = 'report: {"step": 9, "committed_step": 9}'
    evidence = TerminationCache()
    assert evidence.final_report(KEY, JOBSET_UID) is None
    evidence.note(KEY, pod(1, state=terminated(0, message=parting)))
    assert evidence.final_report(KEY, JOBSET_UID) is None
    assert not evidence.note(KEY, pod(0, state=terminated(0, message=parting)))
    progress = evidence.final_report(KEY, JOBSET_UID)
    assert progress is not None
    assert (progress.committed_step, progress.is_final) == (9, True)
    assert evidence.final_report(KEY, "another") is None
    evidence.drop_final_report(KEY)
    assert evidence.final_report(KEY, JOBSET_UID) is None


def test_report_of_an_earlier_pod_does_not_replace_a_later_one() -> None:
    """Workers leave failed pods beside their successors: a list, or their deletion, shows them again."""
    evidence, pods = TerminationCache(), []
    for second, step in ((1, 600), (2, 1457)):
        words = f'end\nreport: {{"phase": "training", "step": {step}}}'
        found = pod(state=terminated(75, message=words), phase="Failed")
        found["metadata"] |= {"uid": f"pod-{second}", "creationTimestamp": f"2030-01-01T12:00:0{second}Z"}
        pods.append(found)
    evidence.note_all(KEY, pods)
    evidence.note(KEY, pods[0], deleted=True)
    progress = evidence.final_report(KEY, JOBSET_UID)
    assert progress is not None
    assert progress.step == 1457


def test_pod_that_vanished_was_asked_to() -> None:
    evidence = TerminationCache()
    assert evidence.note(KEY, pod(0, deleted_after=3), deleted=True)
    (end,) = evidence.of(KEY, JOBSET_UID)
    assert (end.was_asked, end.asked_at, end.message) == (True, NOW + timedelta(seconds=3), "the pod was deleted")
    assert not evidence.note(KEY, pod(1, state=terminated(0), deleted_after=3), deleted=True)


def test_pod_that_never_ran_says_why() -> None:
    end = ended_from_pod(
        pod(
            state=waiting("PodInitializing"),
            phase="Failed",
            initContainerStatuses=[{"name": "launcher", "state": terminated(1, message="no space")}],
        )
    )
    assert end is not None
    assert end.message == "init container launcher: no space"


def with_condition(kind: str, status: str, reason: str) -> dict[str, Any]:
    made = pod(state=terminated(1), phase="Failed")
    made["status"]["conditions"].append({"type": kind, "status": status, "reason": reason, "message": "0/4 nodes"})
    return made


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [("False", "Unschedulable", "0/4 nodes"), ("True", "Unschedulable", None), ("False", "SchedulingGated", None)],
)
def test_pod_that_no_node_takes_is_unschedulable(status: str, reason: str, message: str | None) -> None:
    assert host_from_pod(with_condition("PodScheduled", status, reason)).unschedulable == message


@pytest.mark.parametrize("status", ["True", "False"])
def test_disruption_counts_where_kubernetes_says_that_it_is_one(status: str) -> None:
    end = ended_from_pod(with_condition("DisruptionTarget", status, "PreemptionByScheduler"))
    assert end is not None
    assert (end.is_disrupted, end.was_asked) == (status == "True", status == "True")


def test_end_in_the_second_of_the_request_is_a_consequence() -> None:
    for after, was_asked in ((-1.0, False), (0.0, True), (1.0, True)):
        end = ended_from_pod(pod(state=terminated(143, after=after), deleted_after=0.0))
        assert end is not None
        assert end.was_asked is was_asked


def test_hosts_are_those_of_all_slices() -> None:
    jobs = [{"name": "w", "replicas": 3, "template": {"spec": {"parallelism": 4, "completions": 4}}}]
    assert hosts_of({"metadata": {"name": "j"}, "spec": {"replicatedJobs": jobs}}) == 12


def test_container_without_a_state_is_not_ready() -> None:
    host = host_from_pod(pod(ready=False, containerStatuses=[{"name": kubernetes_names.CONTAINER, "state": None}]))
    assert (host.ready, host.waiting_reason) == (False, None)


def test_pod_without_a_status_was_not_asked_to_stop() -> None:
    bare = {**pod(), "status": None}
    assert ended_from_pod(bare) is None
    gone = ended_by_deletion(bare)
    assert gone is not None
    assert not gone.is_disrupted


def test_deletion_without_a_grace_was_asked_for_at_its_end() -> None:
    deleted = pod(ready=False, state=terminated(143))
    deleted["metadata"]["deletionTimestamp"] = format_time(NOW)
    deleted["metadata"].pop("deletionGracePeriodSeconds", None)
    end = ended_from_pod(deleted)
    assert end is not None
    assert end.asked_at == NOW
