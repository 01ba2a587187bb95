"""Exit codes, alone and two at once in different slices, with and without what explains them: what the job is in then.

The JobSet here is what the operator sees a moment later: it has restarted, whatever Job it saw fail first.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import NOW, ended, host, job, jobset, observed, recorded, status_of
from tpujob_contract.reports.termination_message import RETURNED_0
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.attempt_cause import of_attempt
from tpujob_operator.decide.causes.evidence import disruption_to_record
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.state import Ended, Leaving, LostNode, Observed
from tpujob_resource.models.restart_causes import Cause

DELETED: dict[str, Any] = {"was_asked": True, "asked_at": NOW}
EVICTED = {**DELETED, "is_disrupted": True}
AHEAD = {**EVICTED, "asked_at": NOW + timedelta(seconds=600)}
LATER = NOW + timedelta(seconds=6)
A_SECOND_LATER = NOW + timedelta(seconds=1)
GONE = LostNode(attempt=0, name="node-1", trouble="is gone")


def slices(first: int | None, second: int | None) -> tuple[Ended, ...]:
    """The ends of host 0 of each of two slices, in the same second; None: it still runs."""
    codes = ((0, first), (1, second))
    return tuple(
        ended(0, code, slice_index=index, pod=f"llama-w-{index}-0-abcde") for index, code in codes if code is not None
    )


def restarted(ends: Sequence[Ended], *lost: LostNode) -> Observed:
    """Two slices of one host, restarted once, all well again."""
    hosts = tuple(host(0, slice_index=index, attempt=1, pod=f"llama-w-{index}-0-fghij") for index in (0, 1))
    state = jobset(restarts=1, slices=2, hosts_per_slice=1)
    return observed(
        job(status=recorded(), slices=2, accelerator="cpu:1x1"),
        jobset=state,
        hosts=hosts,
        ended=tuple(ends),
        lost_nodes=lost,
    )


CRASHED = ("Running", 1, None, None)
LOST_0 = "lost process 0 on host a: its connection broke"
LOST_1 = "lost process 1 on host b: silent for 30 s: it hangs, or its machine or network is gone"
UNEXPLAINED = ("Running", None, None, 1)
CODES = {
    # name: (exit codes of two slices, phase and exit code shown, or phase, crashes and disruptions)
    "1": ((1, None), CRASHED),
    "69": ((69, None), CRASHED),
    "75": ((75, None), UNEXPLAINED),
    "76": ((76, None), ("Failed", 76)),
    "77": ((77, None), ("Failed", 77)),
    "78": ((78, None), ("Failed", 78)),
    "79": ((79, None), CRASHED),
    "80": ((80, None), CRASHED),
    "134": ((134, None), CRASHED),
    "137": ((137, None), CRASHED),
    "139": ((139, None), CRASHED),
    "143, nobody asked": ((143, None), CRASHED),
    "255": ((255, None), CRASHED),
    "1 and 1": ((1, 1), CRASHED),
    "1 and 77": ((1, 77), ("Failed", 77)),
    "77 and 1": ((77, 1), ("Failed", 77)),
    "75 and 77": ((75, 77), ("Failed", 77)),
    "75 and 78": ((75, 78), ("Failed", 78)),
    "137 and 76": ((137, 76), ("Failed", 76)),
    "75 and 1": ((75, 1), CRASHED),
    "1 and 75": ((1, 75), CRASHED),
    "75 and 75": ((75, 75), UNEXPLAINED),
    "75 and 134": ((75, 134), CRASHED),
    "79 and 80": ((79, 80), CRASHED),
    "134 and 137": ((134, 137), CRASHED),
}


@pytest.mark.parametrize(("codes", "expected"), CODES.values(), ids=CODES.keys())
def test_exit_codes_decide_what_becomes_of_the_job(
    codes: tuple[int | None, int | None], expected: tuple[Any, ...]
) -> None:
    decision = decide(restarted(slices(*codes)), Settings())
    status = status_of(decision)
    if expected[0] == "Failed":
        assert (status["phase"], status["failure"]["exitCode"], decision.step) == (*expected, Step.SUSPEND)
        assert "delete this job and apply it again; its checkpoints are kept" in status["message"]
    else:
        counted = (
            status.get("restarts.charged"),
            status.get("restarts.disruptions"),
            status.get("restarts.unexplained"),
        )
        assert (status["phase"], *counted) == expected


EXPLAINED = {
    # name: (ends, lost nodes, cause)
    "nobody saw it": ((), (), Cause.UNEXPLAINED),
    "a crash": ((ended(0, 1),), (), Cause.CRASH),
    "peers missing": ((ended(0, 80),), (), Cause.CRASH),
    "peers missing, a node is gone": ((ended(0, 80),), (GONE,), Cause.DISRUPTION),
    "aborted, a node is gone": ((ended(0, 134),), (GONE,), Cause.DISRUPTION),
    "lost one that nobody saw": ((ended(1, 1, message=LOST_0),), (), Cause.UNEXPLAINED),
    "lost one that crashed": ((ended(0, 137, after=1), ended(1, 1, message=LOST_0)), (), Cause.CRASH),
    "lost one that left with 75": ((ended(0, 75), ended(1, 1, after=3, message=LOST_0)), (), Cause.UNEXPLAINED),
    "lost each other": ((ended(0, 1, message=LOST_1), ended(1, 1, message=LOST_0)), (), Cause.UNEXPLAINED),
    "lost one, and another one crashed later": ((ended(1, 1, message=LOST_0), ended(2, 1, after=3)), (), Cause.CRASH),
    "a node that was lost by another attempt": (
        (ended(0, 1),),
        (LostNode(attempt=1, name="n", trouble="is gone"),),
        Cause.CRASH,
    ),
    "only a node is known": ((), (GONE,), Cause.DISRUPTION),
    "deleted": ((ended(0, 143, **DELETED),), (), Cause.DISRUPTION),
    "deleted, its peers crash of it": ((ended(0, 137, after=5, **DELETED), ended(1, 1, after=6)), (), Cause.DISRUPTION),
    "crashed, its peers are deleted": (
        (ended(0, 1, after=-2), ended(1, 75, after=3, **DELETED)),
        (),
        Cause.CRASH,
    ),
    "crashed and its peers deleted within a second": ((ended(0, 1), ended(1, 75, **DELETED)), (), Cause.CRASH),
    "deleted, its peers that were there already crash of it": (
        (ended(0, 137, after=5, **DELETED), ended(1, 1, after=6, created_at=NOW)),
        (),
        Cause.DISRUPTION,
    ),
    "suspended, resumed, and a new pod crashed": (
        (ended(0, 137, after=1, **DELETED), ended(0, 1, after=9, pod="llama-w-0-0-fghij", created_at=LATER)),
        (),
        Cause.CRASH,
    ),
    "evicted, its peers crash within a second": ((ended(0, 143, **EVICTED), ended(1, 134)), (), Cause.DISRUPTION),
    "crashed, evicted afterwards": ((ended(0, 1, after=-9), ended(1, 143, **EVICTED)), (), Cause.CRASH),
    "code 75 that nobody asked for, its peers deleted a second later": (
        (ended(0, 75, version=10), ended(1, 143, after=3, was_asked=True, asked_at=A_SECOND_LATER, asked_version=11)),
        (),
        Cause.UNEXPLAINED,
    ),
    "code 75 that nobody asked for, its peers deleted within the second": (
        (ended(0, 75, version=10), ended(1, 143, after=3, **DELETED, asked_version=11)),
        (),
        Cause.UNEXPLAINED,
    ),
    "code 75 that nobody asked for, a peer deleted and another crashed": (
        (ended(0, 75), ended(1, 143, after=4, was_asked=True, asked_at=A_SECOND_LATER), ended(2, 1, after=3)),
        (),
        Cause.CRASH,
    ),
    "deleted, its peers stop with it": (
        (ended(0, 75, after=4, **DELETED), ended(1, 75, after=3)),
        (),
        Cause.DISRUPTION,
    ),
    "deleted, its peers stop within the second": (
        (ended(0, 75, **DELETED, asked_version=10, version=13), ended(1, 75, version=12)),
        (),
        Cause.DISRUPTION,
    ),
    "deleted, its peers crash within the second": (
        (ended(0, 75, **DELETED, asked_version=10, version=13), ended(1, 1, version=12)),
        (),
        Cause.DISRUPTION,
    ),
    "evicted where the clock is ahead, its peers crash": (
        (ended(0, 143, after=600, **AHEAD, asked_version=10, version=10), ended(1, 1, after=8, version=12)),
        (),
        Cause.DISRUPTION,
    ),
    "crashed, evicted afterwards where the clock is ahead": (
        (ended(0, 143, after=600, **AHEAD, asked_version=12, version=12), ended(1, 1, version=10)),
        (),
        Cause.CRASH,
    ),
    "crashed where the clock is ahead, deleted afterwards": (
        (ended(0, 1, after=600, version=10), ended(1, 143, after=4, **DELETED, asked_version=12, version=13)),
        (),
        Cause.CRASH,
    ),
    "crashed, deleted afterwards": ((ended(0, 1, after=-9, asked_at=NOW),), (), Cause.CRASH),
}


@pytest.mark.parametrize(("ends", "lost", "cause"), EXPLAINED.values(), ids=EXPLAINED.keys())
def test_what_came_first_is_the_cause(ends: tuple[Ended, ...], lost: tuple[LostNode, ...], cause: Cause) -> None:
    finding = of_attempt(restarted(ends, *lost), 0)
    assert finding.cause is cause
    assert finding.message.endswith(".")


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ((ended(1, 1, message=LOST_0),), "lost process 0, and nobody saw how that one ended."),
        (
            (ended(1, 1, message=LOST_0), ended(0, 137, **DELETED, asked_version=20)),
            "lost process 0, and nobody saw how that one ended.",
        ),
        (
            (ended(1, 75),),
            "ended with exit code 75, by which a program asks to be started again, and nobody is known to",
        ),
    ],
    ids=["gone", "stored after JobSet had deleted its pod", "asks for another start"],
)
def test_an_end_without_a_known_cause_says_what_was_seen(ends: tuple[Ended, ...], message: str) -> None:
    finding = of_attempt(restarted(ends), 0)
    assert finding.cause is Cause.UNEXPLAINED
    assert finding.message.startswith(f"Pod {ends[0].pod} {message}")


def test_pod_that_still_uses_its_grace_period_explains_what_its_peers_do() -> None:
    """Its own end comes last, and until then nobody is to read that the cause is not known."""
    leaving = Leaving(
        pod="llama-w-0-1-abcde",
        slice_index=0,
        host_index=1,
        attempt=0,
        asked_at=NOW,
        asked_version=10,
        is_disrupted=True,
        node="node-1",
    )
    seen = replace(restarted([ended(0, 75, after=2)]), leaving=(leaving,))
    finding = of_attempt(seen, 0)
    assert finding.cause is Cause.DISRUPTION
    assert finding.message == "Pod llama-w-0-1-abcde on node node-1 was evicted, preempted or shut down with its node."
    assert of_attempt(replace(seen, ended=()), 0).cause is Cause.UNEXPLAINED


FIRST_DELETED = ended(0, 143, slice_index=1, **DELETED, asked_version=20)
ALSO_DELETED = ended(0, 143, slice_index=0, after=4, **DELETED, asked_version=21)
RECORDED = {"attempt": 0, "pod": FIRST_DELETED.pod, "sliceIndex": 1, "hostIndex": 0, "exitCode": 143, "askedAt": NOW}
DELETED_BY_WHOM = {
    # name: (ends, version in which the restart was first seen, the recorded disruption, cause)
    "deleted, then the restart was counted": ((FIRST_DELETED,), 22, None, Cause.DISRUPTION),
    "deleted after the restart was counted": ((FIRST_DELETED,), 19, None, Cause.UNEXPLAINED),
    "an operator that starts sees the restart and one deletion": ((FIRST_DELETED,), 0, None, Cause.UNEXPLAINED),
    "an operator that starts sees all of them deleted": ((FIRST_DELETED, ALSO_DELETED), 0, None, Cause.DISRUPTION),
    "the operator before it had seen the deletion in time": ((FIRST_DELETED,), 0, RECORDED, Cause.DISRUPTION),
    "evicted, which no restart does": ((replace(FIRST_DELETED, is_disrupted=True),), 0, None, Cause.DISRUPTION),
}


@pytest.mark.parametrize(
    ("ends", "version", "record", "cause"), DELETED_BY_WHOM.values(), ids=list(DELETED_BY_WHOM.keys())
)
def test_deletion_that_a_restart_makes_is_no_disruption(
    ends: tuple[Ended, ...], version: int, record: dict[str, Any] | None, cause: Cause
) -> None:
    """A program asked to be started again while no operator ran: all that is left is how JobSet deletes its peers."""
    seen = restarted(ends)
    assert seen.jobset is not None
    state = replace(seen.jobset, restarts_version=version)
    if record is not None:
        seen = observed(job(status=recorded(disruption=record), slices=2, accelerator="cpu:1x1"), ended=ends)
    finding = of_attempt(replace(seen, jobset=state), 0)
    assert finding.cause is cause
    recorded_now = disruption_to_record(replace(seen, jobset=state))
    assert (recorded_now is not None) == (cause is Cause.DISRUPTION)
    if cause is Cause.UNEXPLAINED:
        assert finding.message == (
            f"Pod {FIRST_DELETED.pod} was deleted, maybe because others had failed: nobody saw how all of them ended."
        )


LAST = NOW + timedelta(seconds=3)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ended(0, 143, after=5, was_asked=True, asked_at=NOW), ended(1, 143, after=4, was_asked=True, asked_at=LAST)),
        (ended(0, 143, was_asked=True), ended(1, 143, after=4, was_asked=True, asked_at=LAST)),
        (ended(0, 143, was_asked=True), ended(1, 143, after=4, was_asked=True)),
    ],
    ids=["both times are known", "one is not known", "none is known"],
)
def test_disruption_that_came_first_is_named(first: Ended, second: Ended) -> None:
    """By when it was asked to stop; by its end, where that is not known."""
    assert of_attempt(restarted([second, first]), 0).message == f"Pod {first.pod} was deleted."


def test_fatal_code_of_an_earlier_attempt_counts() -> None:
    """JobSet had restarted before anybody looked, and the next attempt crashed otherwise."""
    ends = (ended(0, 77), ended(1, 1, attempt=1))
    seen = observed(job(status=recorded()), jobset=jobset(restarts=2), ended=ends)
    status = status_of(decide(seen, Settings()))
    assert (status["phase"], status["failure"]["exitCode"]) == ("Failed", 77)


def test_fatal_code_at_a_stop_that_was_asked_for_leaves_the_job_suspended() -> None:
    ends = (ended(0, 77, **DELETED),)
    seen = observed(job(status=recorded("Stopping"), suspend=True), jobset=jobset(suspended=True), ended=ends)
    assert status_of(decide(seen, Settings()))["phase"] == "Suspended"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (DELETED, "Pod llama-w-0-0-abcde was deleted."),
        ({**DELETED, "node": "node-1"}, "Pod llama-w-0-0-abcde on node node-1 was deleted."),
        (
            {**EVICTED, "node": "node-1"},
            "Pod llama-w-0-0-abcde on node node-1 was evicted, preempted or shut down with its node.",
        ),
    ],
    ids=["deleted", "deleted, on a node", "evicted"],
)
def test_disruption_names_the_pod_and_its_node(how: dict[str, Any], message: str) -> None:
    assert of_attempt(restarted([ended(0, 143, **how)]), 0).message == message


@pytest.mark.parametrize("how", [DELETED, EVICTED], ids=["deleted", "evicted"])
def test_a_program_that_returns_0_when_it_is_asked_to_stop_is_said_so(how: dict[str, Any]) -> None:
    """Its launcher ends with 75, since the job is not done; whoever wrote the program is to know."""
    told = f"exit code 75, asked to stop\ntold to stop by SIGTERM, {RETURNED_0}"
    finding = of_attempt(restarted([ended(0, 75, message=told, **how)]), 0)
    assert finding.cause is Cause.DISRUPTION
    assert finding.message.endswith(
        ". The program of pod llama-w-0-0-abcde returned 0 when it was asked to stop, before its job was done, so its "
        "end counts as exit code 75."
    )
    assert "returned 0" not in of_attempt(restarted([ended(0, 75, **how)]), 0).message
