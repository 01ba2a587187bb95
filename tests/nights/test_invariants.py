"""Each invariant holds in a good history, and is broken by one that is wrong in one thing."""

from typing import Any

import pytest

from tests.nights import invariants
from tests.nights.history import History, PodEnd, Seen, Struck
from tests.nights.invariants import broken
from tests.nights.schedule import Blow

RUNNING: dict[str, Any] = {
    "phase": "Running",
    "observedGeneration": 1,
    "internal.jobSetUid": "set",
    "incarnation": 1,
    "hosts": 1,
    "hostsReady": 1,
    "step": 50,
    "lastCheckpointStep": 40,
}
WAITING = {**RUNNING, "phase": "Restarting", "hostsReady": 0}
FAILED = {**RUNNING, "phase": "Failed"}
RESTARTED = {**RUNNING, "step": 40, "restarts.total": 1, "internal.bookedRestarts": 1}
DISRUPTED = {**RESTARTED, "restarts.disruptions": 1}
UNEXPLAINED = {**RESTARTED, "restarts.unexplained": 1}
CHARGED = {**RESTARTED, "restarts.charged": 1}
ASKED = {**RESTARTED, "internal.suspensionRestarts": 1}


def job(at: float, status: dict[str, Any], *, generation: int = 1, **spec: Any) -> Seen:
    facts = {"generation": generation, "spec": {"args": ["1"], **spec}, "status": status, "deleting": False}
    return Seen(at=at, kind="job", name="llama", uid="job", facts=facts)


def jobset(at: float, *, restarts: int = 0, suspend: bool = False, args: tuple[str, ...] = ("1",)) -> Seen:
    facts = {"owner": "job", "suspend": suspend, "restarts": restarts, "args": list(args)}
    return Seen(at=at, kind="jobset", name="llama", uid="set", facts=facts)


def pod(at: float, *, uid: str = "pod", of: str = "set", phase: str = "Running") -> Seen:
    facts = {"job": "llama", "jobset": of, "attempt": 0, "phase": phase, "ready": phase == "Running", "node": "n"}
    return Seen(at=at, kind="pod", name=uid, uid=uid, facts=facts)


def gone(seen: Seen, at: float) -> Seen:
    return Seen(at=at, kind=seen.kind, name=seen.name, uid=seen.uid, facts=seen.facts, is_gone=True)


def end(at: float, why: str, exit_code: int = 1) -> PodEnd:
    return PodEnd(at=at, pod="pod", job="llama", jobset="set", attempt=0, exit_code=exit_code, why=why)


def struck(at: float, kind: str, *, until: float | None = None, number: int = 0) -> Struck:
    blow = Blow(at=at, kind=kind, target="llama", number=number)
    return Struck(at=at, until=at if until is None else until, blow=blow)


def history(*parts: Seen | PodEnd | Struck, deleted: bool = True, **more: Any) -> History:
    """With all deleted in the end, unless it is about the end."""
    seen = [part for part in parts if isinstance(part, Seen)]
    if deleted:
        seen += [gone(each, 100) for each in {each.uid: each for each in seen}.values()]
    ends = [part for part in parts if isinstance(part, PodEnd)]
    hits = [part for part in parts if isinstance(part, Struck)]
    return History(seen=seen, ends=ends, struck=hits, rested_at=99, seconds=101, **more)


def restarted(status: dict[str, Any], *parts: Seen | PodEnd | Struck) -> History:
    """Of a job that ran, and has started again since."""
    return history(job(1, RUNNING), *parts, jobset(2, restarts=1), pod(3), job(25, status))


def lost(node: str, at: float, until: float) -> Struck:
    return Struck(at=at, until=until, blow=Blow(at=at, kind="lose-node", target="other"), node=node)


def a_worker_is_gone(*parts: Seen | PodEnd | Struck, restarts: int = 0, ready: int = 0) -> History:
    """At rest, whatever came before."""
    status = {**WAITING, "hostsReady": ready}
    made = jobset(41 if restarts else 2, restarts=restarts)
    return history(*parts, end(40, "asked", 75), made, job(50, status, workers=1))


def wrong_clock(at: float, seconds: int) -> Struck:
    return struck(at, "wrong-clock", until=at + 10, number=seconds)


GOOD = {
    "runs": history(job(1, {}), jobset(2), pod(3), job(4, RUNNING)),
    "one JobSet after the other": history(pod(3), gone(pod(3), 4), pod(5, uid="new", of="other")),
    "crash": restarted(CHARGED, end(20, "crash")),
    "eviction": restarted(DISRUPTED, end(20, "evict")),
    "stop": restarted(UNEXPLAINED, end(20, "stop")),
    "stop, of which a peer fails": restarted(CHARGED, end(20, "stop"), end(23, "peer", 1)),
    "step of the attempt before, told once more as a restart is judged": history(
        job(1, {**RUNNING, "restarts.total": 1, "step": 42}),
        end(5, "crash"),
        job(9, CHARGED),
        jobset(2, restarts=1),
        pod(3),
    ),
    "eviction of a pod that nobody saw": restarted(UNEXPLAINED, end(20, "evict"), end(23, "peer", 1)),
    "crash that nobody saw": restarted(UNEXPLAINED, struck(19, "kill-operator"), end(20, "crash")),
    "node that is lost before a stop is judged": restarted(DISRUPTED, end(20, "stop"), lost("n", 22, 30)),
    "step of before while a restart is announced": history(
        job(1, RUNNING), job(4, {**RUNNING, "step": 40, "phase": "Restarting"}), end(5, "crash"), job(9, FAILED)
    ),
    "suspension that is judged long after it": history(
        job(1, RUNNING), jobset(2, suspend=True), end(20, "asked", 75), jobset(50, restarts=1), pod(60), job(70, ASKED)
    ),
    "suspension that a queue ends while pods still stop": history(
        job(1, RUNNING),
        pod(2),
        jobset(5, suspend=True),
        jobset(10),
        end(20, "asked", 75),
        jobset(50, restarts=1),
        job(70, ASKED),
    ),
    "JobSet that was deleted": history(job(1, RUNNING), struck(3, "delete-jobset"), job(4, FAILED)),
    "one of the workers": history(jobset(2), pod(3), job(4, {**RUNNING, "hosts": 3, "hostsReady": 1}, workers=3)),
    "worker whose clock was ahead": a_worker_is_gone(wrong_clock(35, 600)),
    "retry": history(
        end(1, "crash"), job(1, FAILED), jobset(2), pod(3), job(5, {**RUNNING, "observedGeneration": 2}, generation=2)
    ),
    "suspended": history(job(1, {**RUNNING, "phase": "Suspended"}, suspend=True)),
    "queued": history(job(1, {**RUNNING, "phase": "Queued"}, queue="q"), jobset(2, suspend=True)),
    "finished": history(end(1, "finished", 0), job(2, {**RUNNING, "phase": "Succeeded"})),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_history_breaks_nothing(name: str) -> None:
    assert broken(GOOD[name]) == []


BAD = {
    "one_jobset_lives": [history(pod(3), pod(4, uid="new", of="other"))],
    "ended_stays_ended": [history(end(1, "crash"), job(1, FAILED), jobset(2), pod(3), job(4, RUNNING))],
    "step_goes_back_only_when_counted": [
        history(job(1, RUNNING), jobset(2), pod(3), job(4, {**RUNNING, "step": 45})),
        history(job(1, RUNNING), jobset(2), pod(3), job(4, {**RUNNING, "lastCheckpointStep": 30})),
    ],
    "restarts_only_grow": [
        history(job(1, DISRUPTED), jobset(2), pod(3), job(4, {**RUNNING, "restarts.disruptions": 1}))
    ],
    "each_fault_under_its_cause": [
        restarted(DISRUPTED),
        restarted(DISRUPTED, end(20, "crash")),
        restarted(DISRUPTED, end(20, "stop")),
        restarted(CHARGED, struck(15, "freeze-operator", until=22), end(20, "evict")),
        restarted(DISRUPTED, end(20, "stop"), lost("another", 22, 30)),
        restarted(DISRUPTED, lost("n", 1, 2), end(20, "stop")),
        history(
            job(1, RUNNING),
            jobset(2, suspend=True),
            jobset(5),
            pod(8),
            end(20, "crash"),
            jobset(50, restarts=1),
            pod(60),
            job(70, ASKED),
        ),
    ],
    "status_is_true_at_rest": [
        history(jobset(2), job(4, RUNNING)),
        history(jobset(2), pod(3), job(4, {**RUNNING, "hosts": 3, "hostsReady": 1})),
        history(jobset(2), job(4, {**RUNNING, "hosts": 3, "hostsReady": 0}, workers=3)),
        history(jobset(2, restarts=1), pod(3), job(4, RUNNING)),
        history(jobset(2, args=("2",)), pod(3), job(4, RUNNING)),
        history(jobset(2), pod(3), job(4, RUNNING, generation=2)),
        history(job(1, FAILED)),
        history(job(1, {**RUNNING, "phase": "Succeeded"})),
        history(job(1, {**RUNNING, "phase": "Suspended"})),
        history(jobset(1), pod(2), job(3, RUNNING, suspend=True)),
        history(jobset(1), pod(2), job(3, {**RUNNING, "phase": "Starting"})),
        a_worker_is_gone(),
        a_worker_is_gone(wrong_clock(20, 600)),
        a_worker_is_gone(wrong_clock(35, -600)),
        a_worker_is_gone(wrong_clock(35, 600), restarts=1),
        a_worker_is_gone(wrong_clock(35, 600), ready=1),
    ],
    "nothing_is_left": [
        history(gone(job(1, RUNNING), 98), jobset(2), deleted=False),
        history(gone(job(1, RUNNING), 98), pod(2), deleted=False),
    ],
    "writes_and_events_are_bounded": [history(job(1, RUNNING), jobset(2), pod(3), writes={"llama": 500})],
    "no_program_ends_by_itself": [history(own_ends=["the operator"])],
}


@pytest.mark.parametrize(("name", "number"), [(name, number) for name in BAD for number in range(len(BAD[name]))])
def test_bad_history_breaks_its_invariant(name: str, number: int) -> None:
    assert {what.partition(":")[0] for what in broken(BAD[name][number])} == {name}


def test_every_invariant_can_be_broken() -> None:
    assert {each.__name__ for each in invariants.INVARIANTS} == BAD.keys()
