"""Attempts in the same pods: what a report says of them, and how often and under which cause they are counted."""

from dataclasses import dataclass, field
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
    terminated,
)
from tests.statuses import flat
from tpujob_contract.reports import in_place as wire
from tpujob_operator.decide.causes.restart_accounting import of_jobsets, recorded_between, totals
from tpujob_operator.decide.chain import Decision, decide
from tpujob_operator.observe.in_place import PodAccount, account_from_json, last_restart
from tpujob_operator.observe.report import TEXT_LENGTH, progress_from_report
from tpujob_operator.observe.state import Observed
from tpujob_operator.observe.terminations import TerminationCache
from tpujob_operator.settings import Settings
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
    stored = flat(decide(seen, SETTINGS).status.as_stored())
    assert (stored.get("restarts.inThesePods"), stored.get("restarts.inPlaceCause")) == expected


def test_new_pods_have_started_once() -> None:
    seen = observed(job(status=recorded(**EARLIER)), jobset=jobset(restarts=1))
    assert not flat(decide(seen, SETTINGS).status.as_stored()).keys() & EARLIER.keys()


def end(number: int, cause: str = wire.CRASH, **fields: Any) -> dict[str, Any]:
    at = NOW.timestamp() + 60 * number
    values = {"cause": cause, "process": 1, "code": 137, "at": at, "again": at + 2, "line": f"end {number}", **fields}
    return {"number": number, **values}


def account(crashes: int = 0, unexplained: int = 0, **fields: Any) -> dict[str, Any]:
    """What launchers tell after so many ends."""
    ends = [end(number) for number in range(1, crashes + 1)]
    ends += [end(crashes + number, wire.UNEXPLAINED, code=75) for number in range(1, unexplained + 1)]
    return {"counts": {wire.CRASH: crashes, wire.UNEXPLAINED: unexplained}, "ends": ends[-wire.MOST_ENDS :], **fields}


def told(given: Any, *, lead: bool = True, attempt: int = 0, name: str = "llama-w-0-0-abcde") -> PodAccount:
    found = account_from_json(given)
    assert found is not None
    return PodAccount(pod=name if lead else "llama-w-0-1-abcde", attempt=attempt, is_lead=lead, account=found)


@dataclass
class Job:
    """A job whose status is what the passes so far have written; Events and restarts by cause add up."""

    status: dict[str, Any] = field(default_factory=recorded)
    restarts: list[Cause] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def looks(self, *accounts: PodAccount, limit: int = LIMIT, **seen: Any) -> Decision:
        """One pass; an operator that was replaced before knows no more than the status."""
        manifest = job(status=self.status, inPlaceRestarts=limit)
        values = {"jobset": jobset(), "hosts": BOTH, "in_place": accounts, **seen}
        look = observed(manifest, **values)
        decision = decide(look, SETTINGS)
        self.restarts += recorded_between(look.status, decision.status).elements()
        self.events += [note.message for note in decision.in_place_notes]
        self.status = flat(decision.status.as_stored())
        return decision


NEXT: dict[str, Any] = {
    "jobset": jobset(restarts=1),
    "hosts": (host(0, attempt=1, pod="llama-w-0-0-fghij"), host(1, attempt=1, pod="llama-w-0-1-fghij")),
}
CRASHED = ended(1, 1)
ONE, TWO = (account(crashes=number) for number in (1, 2))
FRESH: dict[str, Any] = {"attempt": 1, "name": "llama-w-0-0-fghij"}

SECOND = "llama-w-0-0-second"
SECOND_LEAD: dict[str, Any] = {"hosts": (host(0, pod=SECOND), host(1))}
FROM_FIRST: dict[str, Any] = {
    "counts": {wire.CRASH: 1, wire.DISRUPTION: 1},
    "ends": [end(1), end(2, wire.DISRUPTION, process=0)],
    "lead": "llama-w-0-0-abcde",
}
LOST: dict[str, Any] = {"counts": {wire.DISRUPTION: 1}, "ends": [end(1, wire.DISRUPTION)]}
ALL_NEW: dict[str, Any] = {**LOST, "ends": [end(1, wire.DISRUPTION, process=0, line=wire.ALL_NEW)]}
SINCE_ALL_NEW: dict[str, Any] = {
    "counts": {wire.DISRUPTION: 1, wire.CRASH: 1},
    "ends": [*ALL_NEW["ends"], end(2, words="since it started again")],
}
LOST_IN_A_ROW: list[dict[str, Any]] = [
    {
        "counts": {wire.DISRUPTION: count},
        "ends": [
            end(number, wire.DISRUPTION, again=NOW.timestamp() + 60 * number + 2.9) for number in range(1, count + 1)
        ],
    }
    for count in (1, 2, 3)
]
KILLED = (ended(0, 137, after=58), ended(1, 137, after=58))
DELETED = ended(1, 143, after=58, was_asked=True)
OUT_OF_MEMORY = ended(1, 137, after=58)

HISTORIES: dict[str, tuple[list[tuple[list[PodAccount], dict[str, Any]]], list[Cause]]] = {
    # passes of the operator, each with what pods tell and what else is seen; the restarts that are counted
    "one crash, seen twice": ([([told(ONE)], {}), ([told(ONE)], {})], [Cause.CRASH]),
    "two crashes, one after the other": ([([told(ONE)], {}), ([told(TWO)], {})], [Cause.CRASH] * 2),
    "two between two looks": ([([told(TWO)], {})], [Cause.CRASH] * 2),
    "exit code 75": ([([told(account(unexplained=1))], {})], [Cause.UNEXPLAINED]),
    "a crash and exit code 75": ([([told(account(1, 1))], {})], [Cause.CRASH, Cause.UNEXPLAINED]),
    "the pods end before anybody saw a report": (
        [([told(ONE), told(ONE, lead=False)], {**NEXT, "ended": (CRASHED,)})],
        [Cause.CRASH] * 2,
    ),
    "process 0's pod is lost without a word": (
        [([], {}), ([told(TWO, lead=False)], {**NEXT, "ended": (CRASHED,)})],
        [Cause.CRASH] * 3,
    ),
    "process 0's word comes after another's": (
        [([told(ONE, lead=False)], {"hosts": ()}), ([told(ONE), told(ONE, lead=False)], {})],
        [Cause.CRASH],
    ),
    "a fresh pod starts again at zero": (
        [([told(TWO)], {}), ([told(TWO)], {**NEXT, "ended": (CRASHED,)}), ([told(TWO), told(ONE, **FRESH)], NEXT)],
        [Cause.CRASH] * 4,
    ),
    "suspended and resumed: the same attempt in fresh pods": (
        [([told(TWO)], {}), ([told(ONE, name="llama-w-0-0-other")], {"hosts": (host(0, pod="llama-w-0-0-other"),)})],
        [Cause.CRASH] * 3,
    ),
    "process 0 in another pod, which goes on with the account": (
        [([told(ONE)], {}), ([], SECOND_LEAD), ([told(FROM_FIRST, name=SECOND)], SECOND_LEAD)],
        [Cause.CRASH, Cause.DISRUPTION],
    ),
    "a pod that was deleted": ([([told(LOST)], {"replaced": (DELETED,)})], [Cause.DISRUPTION]),
    "a pod that failed by itself": ([([told(LOST)], {"replaced": (OUT_OF_MEMORY,)})], [Cause.CRASH]),
    "a pod that failed by itself, and is not known at the next look": (
        [([told(LOST)], {"replaced": (OUT_OF_MEMORY,)}), ([told(LOST)], {})],
        [Cause.CRASH],
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
    "more than the spec allows": ([([told(account(crashes=900))], {})] * 2, [Cause.CRASH] * LIMIT),
    "other causes each time": (
        [([told(account(crashes=2))], {}), ([told(account(unexplained=900))], {})],
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
    one.looks(told(account(crashes=LIMIT)))
    assert one.status.get("restarts.charged") is None
    one.looks(told(account(crashes=LIMIT)), **{**NEXT, "ended": (CRASHED,)})
    assert (one.status["restarts.charged"], one.status["restarts.total"]) == (1, LIMIT + 1)


def test_each_has_an_event_and_a_record_with_the_last_words_of_the_program_that_failed() -> None:
    one = Job(status=recorded(step=40))
    one.looks(told(ONE))
    assert one.events == ["Restart 1 in the same pods, after a crash: slice 0 host 1 ended with exit code 137: end 1."]
    words = account(crashes=2)
    words["ends"][1]["words"] = "Traceback\nValueError: x"
    one.looks(told(TWO), told(words, lead=False))
    assert len(one.events) == 2
    first, second = one.status["restarts.inPlaceAttempts"]
    assert (first["step"], first["host"], first["exitCode"], first["message"]) == (40, "slice 0 host 1", 137, "end 1")
    assert (second["number"], second["message"]) == (2, "Traceback\nValueError: x")
    one.looks(told(TWO), told(words, lead=False))
    assert len(one.events) == 2


def test_a_report_completes_what_is_known_of_the_last() -> None:
    started = {"seconds": {"starting": 3.0, "restoring": 1.0, "compiling": 4.0, "training": 9.0}, "restored_from": 20}
    report = {"phase": "training", "step": 25, "in_place": TWO, "attempt_steps": 5, **started}
    progress = progress_from_report(report)
    assert progress.in_place is not None
    one = Job()
    one.looks(PodAccount(pod="llama-w-0-0-abcde", attempt=0, is_lead=True, account=progress.in_place))
    first, second = one.status["restarts.inPlaceAttempts"]
    assert (second["nextStep"], second["seconds"]) == (20, 10)
    assert "nextStep" not in first


def test_a_crash_loop_ends_with_the_words_of_each_attempt() -> None:
    words = account(crashes=LIMIT)
    for each in words["ends"]:
        each["words"] = f"RuntimeError: {each['number']}"
    one = Job(status=recorded(charged=3, crashedAtStep=0, bookedRestarts=3))
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
    seen = (told(account(crashes=8)), told(account(crashes=3), **FRESH))
    for _ in range(2):
        decision = one.looks(*seen, limit=20, **{**NEXT, "ended": (CRASHED,)})
    assert not decision.patch
    assert [each["attempt"] for each in one.status["restarts.inPlaceAttempts"]] == [0] * 5 + [1] * 3


def test_pods_whose_entry_is_dropped_are_not_counted_again() -> None:
    """A job that Kueue suspends again and again starts the same attempt in fresh pods."""
    one = Job()
    seen: list[PodAccount] = []
    for number in range(6):
        lead = f"llama-w-0-0-{number}"
        seen.append(told(ONE, name=lead))
        one.looks(*seen, hosts=(host(0, pod=lead), host(1)))
    one.looks(*seen, hosts=(host(0, pod=lead), host(1)))
    assert (one.status["restarts.inPlace"], len(one.status["internal.inPlacePods"])) == (6, 4)


def test_what_others_told_of_the_pods_before_is_dropped_with_fresh_pods() -> None:
    kept = TerminationCache()
    message = wire.line(TWO)  # type: ignore[arg-type]
    for index in (0, 1):
        kept.note(("team", "llama"), pod(index))
        kept.note(("team", "llama"), pod(index, state=terminated(1, message=message), phase="Failed"))
    fresh = pod(0)
    fresh["metadata"]["uid"] = "fresh"
    kept.note(("team", "llama"), fresh)
    assert [each.is_lead for each in kept.accounts(("team", "llama"), JOBSET_UID)] == [True]


def test_words_of_pods_that_have_ended_are_kept_from_the_watch() -> None:
    kept = TerminationCache()
    for index in (0, 1):
        message = f"exit code 1, crashed\n{wire.line(TWO)}"  # type: ignore[arg-type]
        kept.note(("team", "llama"), pod(index, state=terminated(1, message=message), phase="Failed"))
    found = kept.accounts(("team", "llama"), JOBSET_UID)
    assert [(each.is_lead, each.account.total) for each in found] == [(True, 2), (False, 2)]
    (first, _) = kept.of(("team", "llama"), JOBSET_UID)
    assert first.message == "exit code 1, crashed"


def test_an_end_after_which_all_went_on_with_another_pod_explains_no_later_one() -> None:
    kept = TerminationCache()
    key = ("team", "llama")
    kept.note(key, pod(1, state=terminated(137), phase="Failed"))
    instead = (host(0), host(1, pod="llama-w-0-1-second"))
    assert not kept.note_replaced(key, JOBSET_UID, BOTH, NOW + timedelta(seconds=1)), "its pod is the last one there"
    assert not kept.note_replaced(key, JOBSET_UID, instead, NOW), "they have not started again since"
    assert kept.note_replaced(key, JOBSET_UID, instead, NOW + timedelta(seconds=1))
    assert (kept.of(key, JOBSET_UID), len(kept.replaced(key, JOBSET_UID))) == ((), 1)
    kept.note(key, pod(1, state=terminated(137), phase="Failed"))
    assert kept.of(key, JOBSET_UID) == ()
    kept.forget_stopped(key, JOBSET_UID, 0)
    assert kept.replaced(key, JOBSET_UID) == ()


@pytest.mark.parametrize(("after", "is_overcome"), [(61.0, True), (62.0, False)], ids=["before", "in that second"])
def test_a_pod_that_ended_in_the_second_of_the_restart_ended_after_it(after: float, is_overcome: bool) -> None:
    """Wherever that is asked; launchers tell fractions, and Kubernetes none."""
    lost = told({**LOST, "ends": [end(1, wire.DISRUPTION, again=NOW.timestamp() + 62.9)]})
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


NONSENSE: dict[str, Any] = {
    "nothing": None,
    "a list": [],
    "no counts": {"ends": []},
    "counts of words": {"counts": {"crash": "many"}},
    "a negative count": {"counts": {"crash": -5}},
    "a huge count": {"counts": {"crash": 10**30}},
    "not a number": {"counts": {"crash": float("nan")}},
    "a cause that is none": {"counts": {"weather": 3}},
    "true": {"counts": {"crash": True}},
}


@pytest.mark.parametrize("given", NONSENSE.values(), ids=NONSENSE)
def test_an_account_that_makes_no_sense_counts_nothing(given: Any) -> None:
    assert account_from_json(given) is None
    assert progress_from_report({"phase": "training", "in_place": given}).in_place is None


def test_ends_that_make_no_sense_are_left_out() -> None:
    ends = ["x", None, {}, {"number": 9, "cause": "crash"}, {"number": 0}, {"number": 1, "cause": []}, end(2, at="x")]
    found = account_from_json({"counts": {"crash": 2}, "ends": ends})
    assert found is not None
    assert [(each.number, each.at, each.exit_code) for each in found.ends] == [(2, None, 137)]


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
