"""What is read off pods and JobSets; what is absent is read as nothing."""

from datetime import datetime, timedelta
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
from tpujob_resource.models.times import EARLIEST, format_time

KEY = ("team", "llama")


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def bare(**status: Any) -> dict[str, Any]:
    """A pod of which the API server shows no more than these fields of its status."""
    return {**pod(), "status": status or None}


def unscheduled(status: str, reason: str) -> dict[str, Any]:
    return pod(conditions=[{"type": "PodScheduled", "status": status, "reason": reason, "message": "0/3"}])


HOSTS = {
    # name: (pod, expected fields)
    "ready": (pod(), {"ready": True, "succeeded": False, "waiting_reason": None}),
    "running, not ready": (pod(ready=False), {"ready": False}),
    "finished": (
        pod(ready=False, phase="Succeeded", state=terminated(0)),
        {"succeeded": True, "finished_at": NOW},
    ),
    "failed, which is no end that others should have followed": (
        pod(phase="Failed", state=terminated(1)),
        {"finished_at": None},
    ),
    "no status": (bare(), {"ready": False, "succeeded": False, "finished_at": None, "unschedulable": None}),
    "only a phase": (bare(phase="Succeeded"), {"succeeded": True}),
    "no conditions": (bare(phase="Pending", conditions=None), {"ready": False}),
    "no state": (
        pod(ready=False, containerStatuses=[{"name": kubernetes_names.CONTAINER, "state": None}]),
        {"ready": False, "waiting_reason": None},
    ),
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
    "no node": (unscheduled("False", "Unschedulable"), {"ready": False, "unschedulable": "0/3"}),
    "a node after all": (unscheduled("True", "Unschedulable"), {"unschedulable": None}),
    "held back": (unscheduled("False", "SchedulingGated"), {"unschedulable": None}),
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
STARTED: dict[str, Any] = {"containerStatuses": [], "phase": "Failed", "startTime": format_time(NOW)}
OF_DISRUPTION = {"type": "DisruptionTarget", "reason": "PreemptionByScheduler"}
ASKED, UNASKED = {"was_asked": True}, {"was_asked": False}
WITHOUT_GRACE = pod(ready=False, state=terminated(143))
WITHOUT_GRACE["metadata"]["deletionTimestamp"] = format_time(NOW)
ENDS: dict[str, tuple[dict[str, Any], int | None, dict[str, Any]]] = {
    # name: (pod, exit code, further fields; None: no failure)
    "runs": (pod(), None, {}),
    "no status": (bare(), None, {}),
    "finished": (pod(state=terminated(0)), None, {}),
    "crashed": (pod(state=terminated(1)), 1, UNASKED),
    "crashed, deleted later": (pod(state=terminated(1, after=0), deleted_after=3), 1, UNASKED),
    "deleted, then ended": (pod(state=terminated(143, after=5), deleted_after=3), 143, ASKED),
    "deleted, and killed at the end of its grace": (pod(state=terminated(137, after=33), deleted_after=3), 137, ASKED),
    "deleted without a grace": (WITHOUT_GRACE, 143, {"asked_at": NOW}),
    "init container failed": (
        pod(
            state=waiting("PodInitializing"),
            phase="Failed",
            initContainerStatuses=[{"name": "launcher", "state": terminated(1, message="no space")}],
        ),
        1,
        {**UNASKED, "message": "init container launcher: no space"},
    ),
    "evicted before its container ran": (
        pod(
            containerStatuses=[],
            phase="Failed",
            reason="Evicted",
            conditions=[{"type": "DisruptionTarget", "status": "True"}],
        ),
        137,
        {**ASKED, "message": "Evicted"},
    ),
    "refused by its node": (
        pod(**STARTED, reason="UnexpectedAdmissionError", message="Allocate failed: no healthy TPU"),
        137,
        {**ASKED, "message": "UnexpectedAdmissionError: Allocate failed: no healthy TPU"},
    ),
    "crashed, and its node says more": (
        pod(reason="NodeShutdown", startTime=format_time(NOW), state=terminated(1)),
        1,
        {**UNASKED, "is_disrupted": False},
    ),
    "deleted before its container ran": (pod(**STARTED, deleted_after=3), 137, ASKED),
    "deleted, and its container was not found": (
        pod(state=NOT_FOUND, phase="Failed", startTime=format_time(NOW), deleted_after=3),
        137,
        ASKED,
    ),
    "container not found": (pod(state=NOT_FOUND, phase="Failed", startTime=format_time(NOW)), 137, UNASKED),
    "failed in a way nobody knows": (
        pod(**STARTED),
        137,
        {**UNASKED, "message": "it failed before its container ran"},
    ),
    "preempted": (
        pod(state=terminated(143), conditions=[{**OF_DISRUPTION, "status": "True"}]),
        143,
        {**ASKED, "is_disrupted": True},
    ),
    "not preempted": (
        pod(state=terminated(1), conditions=[{**OF_DISRUPTION, "status": "False"}]),
        1,
        {**UNASKED, "is_disrupted": False},
    ),
}


@pytest.mark.parametrize(("found", "code", "expected"), ENDS.values(), ids=ENDS.keys())
def test_end_is_read_off_its_pod(found: dict[str, Any], code: int | None, expected: dict[str, Any]) -> None:
    end = ended_from_pod(found)
    assert (None if end is None else end.exit_code) == code
    assert {name: getattr(end, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("found", "at"),
    [(pod(deleted_after=5), NOW + timedelta(seconds=35)), (pod(), EARLIEST), (bare(), EARLIEST)],
    ids=["deleted", "no time is known", "no status"],
)
def test_deleted_pod_ended_when_its_grace_did(found: dict[str, Any], at: datetime) -> None:
    end = ended_by_deletion(found)
    assert end is not None
    assert (end.finished_at, end.is_disrupted) == (at, False)


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


def jobset(*, labels: dict[str, str] | None = None, owners: tuple[Any, ...] = (), **fields: Any) -> dict[str, Any]:
    metadata = {"name": "llama", "uid": JOBSET_UID, "labels": labels or {}, "ownerReferences": list(owners)}
    return {"metadata": metadata, "spec": {}, **fields}


def with_condition(kind: str, status: str = "True") -> dict[str, Any]:
    found = {"type": kind, "status": status, "reason": "x", "message": "w-0", "lastTransitionTime": None}
    return jobset(status={"conditions": [{"type": "Completed", "status": "False"}, found], "restarts": 1})


REPLICATED = [{"name": "w", "replicas": 3, "template": {"spec": {"parallelism": 4, "completions": 4}}}]
OWNER = {"kind": "TpuTrainingJob", "uid": "job-uid", "controller": True}
OTHER = {"kind": "Workload", "uid": "other", "controller": True}
JOBSETS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # name: (JobSet, expected fields)
    "bare": (
        jobset(status=None),
        {
            "restarts": 0,
            "outcome": None,
            "owner_uid": None,
            "suspended": False,
            "incarnation": 1,
            "slices": 1,
            "hosts_per_slice": 1,
        },
    ),
    "suspended": (jobset(spec={"suspend": True, "replicatedJobs": REPLICATED}), {"suspended": True, "hosts": 12}),
    "restarted": (jobset(status={"restarts": 2}), {"restarts": 2}),
    "completed": (with_condition("Completed"), {"outcome": "Completed"}),
    "failed": (
        with_condition("Failed"),
        {"outcome": "Failed", "outcome_reason": "x", "outcome_message": "w-0", "outcome_at": None, "restarts": 1},
    ),
    "not failed": (with_condition("Failed", "False"), {"outcome": None}),
    "no outcome": (with_condition("Suspended"), {"outcome": None}),
    "ours": (jobset(owners=(OTHER, OWNER)), {"owner_uid": "job-uid"}),
    "not controlled by ours": (jobset(owners=(OTHER, {**OWNER, "controller": False})), {"owner_uid": None}),
    "a third incarnation": (jobset(labels={"tpujob.dev/incarnation": "3"}), {"incarnation": 3}),
    "no incarnation": (jobset(labels={"tpujob.dev/incarnation": ""}), {"incarnation": 1}),
    "an incarnation that is no number": (jobset(labels={"tpujob.dev/incarnation": "many"}), {"incarnation": 1}),
}


@pytest.mark.parametrize(("found", "expected"), JOBSETS.values(), ids=JOBSETS.keys())
def test_jobset_is_read(found: dict[str, Any], expected: dict[str, Any]) -> None:
    state = jobset_state(found)
    assert {name: getattr(state, name) for name in expected} == expected


def test_hosts_are_those_of_all_slices() -> None:
    assert hosts_of(jobset(spec={"replicatedJobs": REPLICATED})) == 12


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
