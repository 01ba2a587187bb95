"""Attempts in the same pods: what a report says of them, and how often and under which cause they are counted."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import (
    BOTH,
    JOBSET_UID,
    NOW,
    condition,
    ended,
    host,
    job,
    jobset,
    observed,
    pod,
    recorded,
    status_of,
    terminated,
)
from tpujob_contract.reports import in_place as wire
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.restart_accounting import of_jobsets, recorded_between, totals
from tpujob_operator.decide.chain import Decision, decide
from tpujob_operator.observe.from_objects import account_by
from tpujob_operator.observe.in_place import InPlaceAccount, account_from_json, last_restart
from tpujob_operator.observe.report import TEXT_LENGTH, progress_from_report
from tpujob_operator.observe.state import Observed
from tpujob_operator.observe.terminations import TerminationCache
from tpujob_resource.messages.conditions import Reason, Type
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.status import Status
from tpujob_resource.models.times import format_time

SETTINGS = Settings(network_policies=False)
CAUSE = "process 1 ended with exit code 137"
EARLIER: dict[str, Any] = {"restarts.inThesePods": 1, "restarts.inPlaceCause": CAUSE}
LIMIT = 3

REPORTS: dict[str, tuple[dict[str, Any], tuple[int | None, str | None]]] = {
    # what the report says, and what the status then does of attempts in the same pods
    "another one": ({"in_place_restarts": 2, "in_place_cause": "process 0"}, (2, "process 0")),
    "of an older launcher": ({}, (1, CAUSE)),
    "new pods": ({"in_place_restarts": 0, "in_place_cause": None}, (None, None)),
    "nonsense": ({"in_place_restarts": "many", "in_place_cause": ["x"]}, (1, None)),
    "a negative number": ({"in_place_restarts": -1}, (1, CAUSE)),
    "more than the spec allows": ({"in_place_restarts": 900}, (LIMIT, CAUSE)),
    "far too long": ({"in_place_restarts": 2, "in_place_cause": "x" * 9999}, (2, "x" * TEXT_LENGTH)),
}


@pytest.mark.parametrize("name", REPORTS)
def test_status_says_what_the_report_does(name: str) -> None:
    report, expected = REPORTS[name]
    progress = progress_from_report({"phase": "training", "step": 7, **report})
    manifest = job(status=recorded(**EARLIER), inPlaceRestarts=LIMIT)
    seen = observed(manifest, jobset=jobset(), hosts=BOTH, progress=progress)
    stored = status_of(decide(seen, SETTINGS))
    assert (stored.get("restarts.inThesePods"), stored.get("restarts.inPlaceCause")) == expected


def test_new_pods_have_started_once() -> None:
    seen = observed(job(status=recorded(**EARLIER)), jobset=jobset(restarts=1))
    assert not status_of(decide(seen, SETTINGS)).keys() & EARLIER.keys()


FIRST, SECOND, THIRD = (f"llama-w-0-0-{name}" for name in ("abcde", "second", "third"))
"""Pods of process 0, in the order in which they were created."""


def account(*causes: str, **last: Any) -> dict[str, Any]:
    """What launchers tell after ends with these causes."""
    at = NOW.timestamp() + 60 * len(causes)
    code = 75 if causes[-1] == wire.UNEXPLAINED else 137
    values = {"process": 1, "code": code, "at": at, "again": at + 2, "line": f"end {len(causes)}", **last}
    counts = {cause: causes.count(cause) for cause in wire.CAUSES}
    return {"counts": counts, "last": {"cause": causes[-1], **values}}


def crashes(number: int) -> dict[str, Any]:
    return account(*[wire.CRASH] * number)


def told(
    given: Any, *, by: str = FIRST, lead: str = FIRST, attempt: int = 0, index: int = 0, made: int = 0
) -> InPlaceAccount:
    """As read from a pod; `index` is its process, and `lead` the pod by which launchers know the set."""
    found = account_from_json({"lead": lead, **given})
    assert found is not None
    made = {SECOND: 1, THIRD: 2}.get(by, made)
    return account_by(host(index, pod=by, attempt=attempt, created_at=NOW + timedelta(seconds=made)), found)


@dataclass
class Job:
    """A job whose status is what the passes so far have written; Events and restarts by cause add up."""

    status: dict[str, Any] = field(default_factory=recorded)
    restarts: list[Cause] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def looks(self, *accounts: InPlaceAccount, limit: int = LIMIT, **seen: Any) -> Decision:
        """One pass; an operator that was replaced before knows no more than the status."""
        manifest = job(status=self.status, inPlaceRestarts=limit)
        values = {"jobset": jobset(), "hosts": BOTH, "in_place": accounts, **seen}
        look = observed(manifest, **values)
        decision = decide(look, SETTINGS)
        self.restarts += recorded_between(look.status, decision.status).elements()
        self.events += [note.message for note in decision.in_place_notes]
        self.status = status_of(decision)
        return decision


NEXT: dict[str, Any] = {
    "jobset": jobset(restarts=1),
    "hosts": (host(0, attempt=1, pod=SECOND), host(1, attempt=1, pod="llama-w-0-1-fghij")),
}
CRASHED = ended(1, 1)
ONE, TWO = crashes(1), crashes(2)
OF_PEER: dict[str, Any] = {"index": 1, "by": "llama-w-0-1-abcde"}
OF_NEXT: dict[str, Any] = {"attempt": 1, "by": SECOND, "lead": SECOND}
OF_SECOND: dict[str, Any] = {"by": SECOND, "lead": SECOND}
RESUMED: dict[str, Any] = {"hosts": (host(0, pod=SECOND), host(1))}

LOST = account(wire.DISRUPTION)
ALL_NEW = account(wire.DISRUPTION, process=0, line=wire.ALL_NEW)
SINCE_ALL_NEW = account(wire.DISRUPTION, wire.CRASH, words="since it started again")
LOST_IN_A_ROW = [account(*[wire.DISRUPTION] * count, again=NOW.timestamp() + 60 * count + 2.9) for count in (1, 2, 3)]
KILLED = (ended(0, 137, after=58), ended(1, 137, after=58))
DELETED = ended(1, 143, after=58, was_asked=True)
OUT_OF_MEMORY = ended(1, 137, after=58)

HISTORIES: dict[str, tuple[list[tuple[list[InPlaceAccount], dict[str, Any]]], list[Cause]]] = {
    # passes of the operator, each with what pods tell and what else is seen; the restarts that are counted
    "one crash, seen twice": ([([told(ONE)], {}), ([told(ONE)], {})], [Cause.CRASH]),
    "two crashes, one after the other": ([([told(ONE)], {}), ([told(TWO)], {})], [Cause.CRASH] * 2),
    "two between two looks": ([([told(TWO)], {})], [Cause.CRASH] * 2),
    "exit code 75": ([([told(account(wire.UNEXPLAINED))], {})], [Cause.UNEXPLAINED]),
    "a crash and exit code 75": (
        [([told(account(wire.CRASH, wire.UNEXPLAINED))], {})],
        [Cause.CRASH, Cause.UNEXPLAINED],
    ),
    "the pods end before anybody saw a report": (
        [([told(ONE), told(ONE, **OF_PEER)], {**NEXT, "ended": (CRASHED,)})],
        [Cause.CRASH] * 2,
    ),
    "process 0's pod is lost without a word": (
        [([], {}), ([told(TWO, **OF_PEER)], {**NEXT, "ended": (CRASHED,)})],
        [Cause.CRASH] * 3,
    ),
    "process 0's word comes after another's": (
        [([told(ONE, **OF_PEER)], {"hosts": ()}), ([told(ONE), told(ONE, **OF_PEER)], {})],
        [Cause.CRASH],
    ),
    "another's word is older than process 0's": (
        [([told(TWO)], {}), ([told(ONE, **OF_PEER)], {})],
        [Cause.CRASH] * 2,
    ),
    "a fresh pod starts again at zero": (
        [([told(TWO)], {}), ([told(TWO)], {**NEXT, "ended": (CRASHED,)}), ([told(TWO), told(ONE, **OF_NEXT)], NEXT)],
        [Cause.CRASH] * 4,
    ),
    "all end between two looks, and the next have started again": (
        [([told(ONE, **OF_NEXT), told(TWO, **OF_PEER)], {**NEXT, "ended": (CRASHED,)})],
        [Cause.CRASH] * 4,
    ),
    "suspended and resumed: the same attempt in fresh pods": (
        [([told(TWO)], {}), ([told(TWO, **OF_PEER), told(ONE, **OF_SECOND)], RESUMED)],
        [Cause.CRASH] * 3,
    ),
    "suspended and resumed while nobody looks, and what the pods before left comes again": (
        [([told(ONE, **OF_SECOND), told(TWO)], RESUMED)] * 3,
        [Cause.CRASH] * 3,
    ),
    "the only pod of a job, suspended and resumed": (
        [([told(TWO, lead="")], {}), ([told(ONE, by=SECOND, lead="")], RESUMED)],
        [Cause.CRASH] * 3,
    ),
    "process 0 in another pod, which goes on with the account": (
        [
            ([told(ONE)], {}),
            ([], RESUMED),
            ([told(account(wire.CRASH, wire.DISRUPTION, process=0), by=SECOND)], RESUMED),
        ],
        [Cause.CRASH, Cause.DISRUPTION],
    ),
    "process 0 in a third pod, of a set of which nobody saw the first": (
        [([told(TWO)], {}), ([told(ONE, by=THIRD, lead=SECOND)], {"hosts": (host(0, pod=THIRD), host(1))})],
        [Cause.CRASH] * 3,
    ),
    "a pod that names another set at each look": (
        [([told(TWO, by=SECOND, lead=name)], RESUMED) for name in (FIRST, SECOND, THIRD, FIRST, "x", "y")],
        [Cause.CRASH] * 2,
    ),
    "another process that names sets of its own": (
        [([told(TWO), told(TWO, lead="x", **OF_PEER), told(TWO, lead="y", **OF_PEER)], {})] * 2,
        [Cause.CRASH] * 2,
    ),
    "a pod that was deleted": ([([told(LOST)], {"replaced": (DELETED,)})], [Cause.DISRUPTION]),
    "a pod that failed by itself": ([([told(LOST)], {"replaced": (OUT_OF_MEMORY,)})], [Cause.CRASH]),
    "a pod that failed by itself, and is not known at the next look": (
        [([told(LOST)], {"replaced": (OUT_OF_MEMORY,)}), ([told(LOST)], {})],
        [Cause.CRASH],
    ),
    "a crash, and a pod that failed by itself, between two looks": (
        [([told(account(wire.CRASH, wire.DISRUPTION))], {"replaced": (ended(1, 137, after=118),)})],
        [Cause.CRASH] * 2,
    ),
    "two lost pods between two looks, of which the last failed by itself": (
        [([told(account(*[wire.DISRUPTION] * 2))], {"replaced": (OUT_OF_MEMORY, ended(1, 137, after=118))})],
        [Cause.CRASH, Cause.DISRUPTION],
    ),
    "all pods are new after a suspension": (
        [([told(ALL_NEW)], {"replaced": (DELETED, ended(0, 143, after=58, was_asked=True))})] * 2,
        [],
    ),
    "all pods are lost with their nodes": (
        [([told(ALL_NEW)], {"replaced": (ended(0, 143, after=-900, was_asked=True, is_disrupted=True),)})],
        [Cause.DISRUPTION],
    ),
    "all pods fail by themselves after one was evicted": (
        [([told(ALL_NEW)], {"replaced": (ended(1, 143, after=-900, was_asked=True, is_disrupted=True), *KILLED)})],
        [Cause.CRASH],
    ),
    "a crash after a suspension": ([([told(ALL_NEW)], {}), ([told(SINCE_ALL_NEW)], {})], [Cause.CRASH]),
    "a crash after all pods were lost with their nodes, which nobody remembers": (
        [
            ([told(ALL_NEW)], {"replaced": (ended(0, 143, after=58, was_asked=True, is_disrupted=True),)}),
            ([told(SINCE_ALL_NEW)], {}),
        ],
        [Cause.DISRUPTION, Cause.CRASH],
    ),
    "a pod that failed by itself soon after one that was deleted": (
        [([told(LOST)], {"replaced": (OUT_OF_MEMORY, ended(1, 143, after=40, was_asked=True))})],
        [Cause.CRASH],
    ),
    "a pod that failed by itself in the second in which all had started again, and one that was deleted later": (
        [
            ([told(LOST_IN_A_ROW[0])], {"replaced": (DELETED,)}),
            ([told(LOST_IN_A_ROW[1])], {"replaced": (DELETED, ended(1, 137, after=62))}),
            (
                [told(LOST_IN_A_ROW[2])],
                {"replaced": (DELETED, ended(1, 137, after=62), ended(1, 143, after=178, was_asked=True))},
            ),
        ],
        [Cause.DISRUPTION, Cause.CRASH, Cause.DISRUPTION],
    ),
    "a pod of another time": (
        [([told(LOST)], {"replaced": (ended(1, 137, after=-900),)})],
        [Cause.DISRUPTION],
    ),
    "a number that falls and rises": ([([told(TWO)], {}), ([told(ONE)], {}), ([told(TWO)], {})], [Cause.CRASH] * 2),
    "more than the spec allows": ([([told(crashes(900))], {})] * 2, [Cause.CRASH] * LIMIT),
    "other causes each time": (
        [([told(TWO)], {}), ([told(account(*[wire.UNEXPLAINED] * 900))], {})],
        [Cause.CRASH, Cause.CRASH, Cause.UNEXPLAINED],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_restarts_in_the_same_pods_are_counted_once_and_under_their_cause(name: str) -> None:
    passes, causes = HISTORIES[name]
    one = Job()
    for accounts, seen in passes:
        one.looks(*accounts, **seen)
    assert sorted(one.restarts) == sorted(causes)
    free = (one.status.get("restarts.unexplained") or 0) + (one.status.get("restarts.disruptions") or 0)
    assert (one.status.get("restarts.total", 0), free) == (len(causes), len(causes) - causes.count(Cause.CRASH))


@pytest.mark.parametrize("seed", range(40))
def test_counts_are_right_whatever_dies(seed: int) -> None:
    """Process 0's pod, or all pods, or the operator, which knows no more than the status when it comes back.

    Of each set of pods one leaves an account, and it is seen before, or together with, those of later sets.
    """
    chance = random.Random(seed)  # noqa: S311
    one, truth = Job(), Counter[str]()
    attempt, made, left = 0, 0, list[InPlaceAccount]()
    for _ in range(8):
        is_resumed = made > 0 and chance.random() < 0.4
        attempt += made > 0 and not is_resumed
        made += 1
        pod, lead, causes = f"pod-{made}", "", list[str]()
        for _ in range(chance.randrange(LIMIT + 1)):
            if chance.random() < 0.3:
                made += 1
                pod = f"pod-{made}"
            lead = lead or pod
            causes.append(chance.choice([wire.CRASH, wire.UNEXPLAINED]))
            report = told(account(*causes), by=pod, lead=lead, attempt=attempt, made=made)
            if chance.random() < 0.4:
                one.status["internal.bookedRestarts"] = attempt
                one.looks(*left, report, jobset=jobset(restarts=attempt), hosts=(host(0, pod=pod, attempt=attempt),))
        truth.update(causes)
        if causes:
            index = 0 if is_resumed else chance.randrange(2)
            left.append(told(account(*causes), by=pod, lead=lead, attempt=attempt, made=made, index=index))
        chance.shuffle(left)
    one.status["internal.bookedRestarts"] = attempt
    one.looks(*left, jobset=jobset(restarts=attempt), hosts=())
    found = [one.status.get(f"restarts.{name}", 0) for name in ("inPlace", "unexplained")]
    assert found == [truth.total(), truth[wire.UNEXPLAINED]]


def test_a_suspension_stands_before_no_crash() -> None:
    one = Job()
    one.looks(told(ALL_NEW))
    one.looks(told(SINCE_ALL_NEW))
    assert [each["message"] for each in one.status["restarts.inPlaceAttempts"]] == ["since it started again"]
    words = "after a crash: slice 0 host 1 ended with exit code 137: since it started again."
    assert one.events == [f"Restart 2 in the same pods, {words}"], "launchers count the suspension"


def test_a_job_that_does_not_ask_for_attempts_in_place_has_none() -> None:
    one = Job()
    one.looks(told(TWO), limit=0)
    assert (one.restarts, one.events, one.status.get("restarts.total")) == ([], [], None)


def test_their_budget_is_their_own() -> None:
    """The containers' end, when it is used up, is the one crash that `restarts.crashes` counts."""
    one = Job()
    one.looks(told(crashes(LIMIT)))
    assert one.status.get("restarts.charged") is None
    one.looks(told(crashes(LIMIT)), **{**NEXT, "ended": (CRASHED,)})
    assert (one.status["restarts.charged"], one.status["restarts.total"]) == (1, LIMIT + 1)


def test_the_last_at_each_look_has_an_event_and_a_record_with_the_words_of_the_program_that_failed() -> None:
    one = Job(status=recorded(step=40))
    one.looks(told(ONE))
    assert one.events == ["Restart 1 in the same pods, after a crash: slice 0 host 1 ended with exit code 137: end 1."]
    words = account(wire.CRASH, wire.CRASH, words="Traceback\nValueError: x")
    one.looks(told(TWO), told(words, **OF_PEER))
    assert len(one.events) == 2
    first, second = one.status["restarts.inPlaceAttempts"]
    assert (first["step"], first["host"], first["exitCode"], first["message"]) == (40, "slice 0 host 1", 137, "end 1")
    assert (second["number"], second["message"]) == (2, "Traceback\nValueError: x")
    assert not one.looks(told(TWO), told(words, **OF_PEER)).patch
    one.looks(told(crashes(4)), limit=9)
    assert [each["number"] for each in one.status["restarts.inPlaceAttempts"]] == [1, 2, 4]
    assert (len(one.events), one.status["restarts.inPlace"]) == (3, 4)


def test_a_report_completes_what_is_known_of_the_last() -> None:
    started = {"seconds": {"starting": 3.0, "restoring": 1.0, "compiling": 4.0, "training": 9.0}, "restored_from": 20}
    report = {"phase": "training", "step": 25, "in_place": TWO, "attempt_steps": 5000, **started}
    progress = progress_from_report(report)
    assert progress.in_place is not None
    one = Job()
    one.looks(told(ONE))
    one.looks(told(TWO))
    one.looks(replace(told(TWO), last=progress.in_place.last))
    first, second = one.status["restarts.inPlaceAttempts"]
    assert (second["nextStep"], second["seconds"]) == (20, 10)
    assert "nextStep" not in first


def test_a_crash_loop_ends_with_the_words_of_each_attempt() -> None:
    one = Job(status=recorded(charged=3, crashedAtStep=0, bookedRestarts=3))
    for number in range(1, LIMIT + 1):
        words = account(*[wire.CRASH] * number, words=f"RuntimeError: {number}")
        one.looks(told(words, attempt=3), jobset=jobset(restarts=3))
    seen: dict[str, Any] = {
        "jobset": jobset(restarts=4),
        "hosts": (),
        "ended": tuple(ended(index, 1, attempt=3) for index in (0, 1)),
    }
    decision = one.looks(told(words, attempt=3), **seen)
    assert (one.status["phase"], decision.note and decision.note.reason) == ("Failed", "CrashedTooOften")
    said = [each["message"] for each in one.status["restarts.inPlaceAttempts"]]
    assert said == [f"RuntimeError: {number}" for number in range(1, LIMIT + 1)]
    assert f"{LIMIT} attempts ended in the same pods" in one.status["message"]


def test_a_second_look_at_the_same_changes_nothing() -> None:
    """Otherwise each write of the status would make the next."""
    one = Job()
    seen = (told(crashes(8)), told(crashes(3), **OF_NEXT))
    for _ in range(2):
        decision = one.looks(*seen, limit=20, **{**NEXT, "ended": (CRASHED,)})
    assert not decision.patch
    assert [(each["attempt"], each["number"]) for each in one.status["restarts.inPlaceAttempts"]] == [(0, 8), (1, 3)]


@pytest.mark.parametrize(("after", "is_overcome"), [(61.0, True), (62.0, False)], ids=["before", "in that second"])
def test_a_pod_that_ended_in_the_second_of_the_restart_ended_after_it(after: float, is_overcome: bool) -> None:
    """Wherever that is asked; launchers tell fractions, and Kubernetes none."""
    lost = told(account(wire.DISRUPTION, again=NOW.timestamp() + 62.9))
    instead = (host(0), host(1, pod="llama-w-0-1-second"))
    gone = {"sliceIndex": 0, "hostIndex": 1, "pod": "llama-w-0-1-abcde", "exitCode": 137, "attempt": 0}
    one = Job(recorded(failure={**gone, "time": format_time(NOW + timedelta(seconds=after))}))
    one.looks(lost, hosts=instead, replaced=(ended(1, 137, after=after),))
    assert ("failure" not in one.status) == is_overcome
    assert [each["cause"] for each in one.status["restarts.inPlaceAttempts"]] == [
        "Crash" if is_overcome else "Disruption"
    ]

    kept = TerminationCache()
    kept.note(("team", "llama"), pod(1, state=terminated(137, after=after), phase="Failed"))
    restarted_at = last_restart([lost], 0)
    assert restarted_at is not None
    assert kept.note_replaced(("team", "llama"), JOBSET_UID, instead, restarted_at) == is_overcome


@pytest.mark.parametrize(("name", "is_kept"), [("llama-w-0-1-second", False), ("llama-w-0-1-abcde", True)])
@pytest.mark.parametrize("field", ["failure", "internal.askedAgain", "internal.disruption"])
def test_what_status_recorded_of_a_pod_goes_once_all_went_on_with_another_one(
    field: str, name: str, is_kept: bool
) -> None:
    gone: Any = {"sliceIndex": 0, "hostIndex": 1, "pod": "llama-w-0-1-abcde", "exitCode": 75, "attempt": 0}
    gone |= {"time": format_time(NOW)} | ({"askedAt": format_time(NOW)} if field == "internal.disruption" else {})
    one = Job(recorded(**{field: gone}))
    one.looks(told(LOST), hosts=(host(0), host(1, pod=name)))
    assert (field in one.status) == is_kept


@pytest.mark.parametrize("last", ["x", None, {}, {"cause": "weather"}, {"cause": []}])
def test_an_end_that_makes_no_sense_is_left_out(last: Any) -> None:
    found = account_from_json({"counts": {"crash": 2}, "last": last})
    assert found is not None
    assert (found.total, found.last) == (2, None)
    one = Job()
    one.looks(told({"counts": {"crash": 2}, "last": last}))
    assert (one.restarts, one.events) == ([Cause.CRASH] * 2, [])


def test_what_is_counted_goes_on_in_the_next_incarnation_of_the_same_run() -> None:
    one = Job()
    one.looks(told(TWO))
    assert isinstance(one.status["restarts.inPlace"], int)
    seen: Observed = observed(job(status=one.status, inPlaceRestarts=LIMIT), jobset=jobset(), hosts=BOTH)
    assert decide(seen, SETTINGS).status.restarts.total == 2


def test_the_next_incarnation_counts_them_once() -> None:
    before = Status().updated({"restarts.total": 5, "restarts.in_place": 2})
    after = Status().updated({"internal.earlier_restarts": of_jobsets(before), "restarts.in_place": 2})
    assert totals(after, jobset())["restarts.total"] == 5
    assert of_jobsets(Status()) is None


NO_LEADER = "Error creating: follower pod node selector for topology domain not found"
LEFT = {0: ("llama-w-0-0-before",)}


@pytest.mark.parametrize(
    ("reason", "seen"),
    [
        (Reason.POD_NOT_REPLACED, {"creation_failure": NO_LEADER, "failed_leaders": LEFT}),
        (Reason.POD_REPLACED, {"creation_failure": NO_LEADER}),
        (Reason.POD_REPLACED, {"failed_leaders": LEFT}),
        (Reason.POD_REPLACED, {"creation_failure": NO_LEADER, "failed_leaders": {1: LEFT[0]}}),
    ],
    ids=["it is in the way", "its successor has no node yet", "nothing is refused", "of another slice"],
)
def test_a_failed_leader_for_which_jobset_refuses_a_pod_is_named(reason: Reason, seen: dict[str, Any]) -> None:
    lost = ended(1, 143, was_asked=True, asked_at=NOW)
    status = decide(
        observed(job(status=recorded(), inPlaceRestarts=2), jobset=jobset(), hosts=(host(0),), ended=(lost,), **seen),
        SETTINGS,
    ).status.as_stored()
    assert condition(status, Type.RUNNING) == ("False", reason)
    assert ("`kubectl delete pod llama-w-0-0-before`" in status["message"]) == (reason is Reason.POD_NOT_REPLACED)
