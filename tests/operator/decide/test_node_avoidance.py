"""A node on which the job crashed twice is avoided from the next attempt on, and never so that the job cannot run."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.operator.building import BOTH, NOW, condition, ended, host, job, jobset, observed, recorded, status_of
from tests.statuses import flat
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes.node_failures import MOST_AVOIDED, MOST_NODES, avoided, with_crashes
from tpujob_operator.decide.causes.restart_accounting import account
from tpujob_operator.decide.chain import decide
from tpujob_operator.decide.checks.node_avoidance import LIFTED_AFTER_SECONDS
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.state import Ended, Notice, Observed
from tpujob_resource.messages.conditions import Reason, Type
from tpujob_resource.models.status import NodeFailures, Status
from tpujob_resource.models.times import format_time

SETTINGS = Settings(network_policies=False)
HOSTNAME, POOL = "kubernetes.io/hostname", "cloud.google.com/gke-nodepool"
LABELS = {"bad": {HOSTNAME: "bad.example", POOL: "pool-1"}}
ASKED: dict[str, Any] = {"was_asked": True, "asked_at": NOW}


def failures(node: str = "bad", number: int = 2, **fields: Any) -> dict[str, Any]:
    return {"node": node, "failures": number, "exitCode": 1, **fields}


def restarting(*, spec: dict[str, Any] | None = None, **fields: Any) -> Observed:
    """One host of the next attempt is there; two crashes on the node `bad` have been booked."""
    books = {
        "restarts.total": 2,
        "internal.bookedRestarts": 2,
        "restarts.charged": 2,
        "nodeFailures": [failures()],
        "lastCheckpointStep": 40,
    }
    status = recorded("Restarting", **{**books, **fields.pop("status", {})})
    values: dict[str, Any] = {"jobset": jobset(restarts=2), "node_labels": LABELS, "hosts": (host(0, attempt=2),)}
    return observed(job(status=status, **(spec or {})), **values | fields)


BOOKED: dict[str, tuple[tuple[Ended, ...], list[tuple[str, int]]]] = {
    # ends of the one attempt that is judged: nodes and their failures
    "a crash": ((ended(0, 1, node="a"),), [("a", 1)]),
    "two, the first counts": ((ended(1, 1, after=1, node="b"), ended(0, 139, node="a")), [("a", 1)]),
    "an eviction": ((ended(0, 143, node="a", is_disrupted=True, **ASKED),), []),
    "a crash behind an eviction": ((ended(0, 143, node="a", **ASKED), ended(1, 1, after=1, node="b")), []),
    "75, and nobody had asked": ((ended(0, 75, node="a"),), []),
    "nobody saw": ((), []),
    "of a pod without a node": ((ended(0, 1),), []),
}


@pytest.mark.parametrize("name", BOOKED)
def test_only_a_first_crash_is_held_against_its_node(name: str) -> None:
    ends, expected = BOOKED[name]
    seen = observed(job(status=recorded()), jobset=jobset(restarts=1), hosts=(host(0, attempt=1),), ended=ends)
    assert [(e.node, e.failures) for e in account(seen).get("node_failures", ())] == expected


def test_failures_add_up_over_checkpoints() -> None:
    status = Status(node_failures=[NodeFailures(node="a", failures=1), NodeFailures(node="b", failures=1)])
    after = with_crashes(status, [ended(0, 139, node="a"), ended(0, 1, node=None)], NOW)
    assert after is not None
    assert [(e.node, e.failures, e.exit_code) for e in after] == [("b", 1, None), ("a", 2, 139)]


def test_status_keeps_the_nodes_that_matter() -> None:
    """What is avoided, then the most failures, then the newest."""
    known = [NodeFailures(node=f"n{index}", failures=1) for index in range(MOST_NODES)]
    known[0] = known[0].model_copy(update={"avoided_label": HOSTNAME, "avoided_value": "n0"})
    known[1] = known[1].model_copy(update={"failures": 2})
    after = with_crashes(Status(node_failures=known), [ended(0, 1, node="new")], NOW)
    assert after is not None
    assert [e.node for e in after] == ["n0", "n1", *(f"n{index}" for index in range(3, MOST_NODES)), "new"]


def test_second_crash_on_a_node_starts_an_incarnation_elsewhere() -> None:
    decision = decide(restarting(), SETTINGS)
    status = status_of(decision)
    assert status["nodeFailures"] == [failures(avoidedLabel=HOSTNAME, avoidedValue="bad.example")]
    kept = {
        "incarnation": 2,
        "restarts.charged": 2,
        "restarts.total": 2,
        "internal.earlierRestarts": 2,
        "lastCheckpointStep": 40,
    }
    assert {key: status.get(key) for key in kept} == kept
    assert not status.keys() & {"internal.jobSetUid", "internal.bookedRestarts", "failure"}
    assert decision.note is not None
    assert (decision.note.reason, decision.note.warning) == (Reason.NODE_AVOIDED, True)
    assert "kubernetes.io/hostname=bad.example" in decision.note.message
    assert "Incarnation 2 starts" in decision.note.message

    gone = decide(observed(job(status=status), jobset=jobset(restarts=2)), SETTINGS)
    assert gone.step is Step.DELETE
    created = decide(observed(job(status=status)), SETTINGS)
    assert created.manifest is not None
    pod = created.manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": HOSTNAME, "operator": "NotIn", "values": ["bad.example"]}]


@pytest.mark.parametrize(
    ("is_paused", "counted"), [(True, (2, None)), (False, (3, 1))], ids=["the pause stopped it", "it was evicted"]
)
def test_a_pod_that_a_pause_stopped_is_no_disruption(is_paused: bool, counted: tuple[int, int | None]) -> None:
    """The look that booked the second crash put the next attempt off, and had its pods deleted."""
    stopped = ended(0, 143, attempt=2, **ASKED)
    spec = {"inPlaceRestarts": 5}
    seen = restarting(spec=spec, jobset=jobset(restarts=2, suspended=is_paused), hosts=(), ended=(stopped,))
    after = decide(seen, SETTINGS).status
    assert after.incarnation == 2
    assert (after.restarts.total, after.restarts.disruptions) == counted


NOT_AVOIDED: dict[str, Observed] = {
    "one crash": restarting(status={"nodeFailures": [failures(number=1)]}),
    "all hosts are ready again": restarting(hosts=BOTH),
    "a restart is not judged yet": restarting(jobset=jobset(restarts=3)),
    "the next attempt has crashed": restarting(ended=(ended(0, 1, attempt=2),)),
    "the node is gone": restarting(node_labels={}),
    "the node has no such label": restarting(node_labels={"bad": {}}),
    "the job is to rest": restarting(spec={"suspend": True}),
    "Kueue chooses": restarting(spec={"queue": "team"}),
    "independent workers": restarting(spec={"workers": 2, "accelerator": "cpu:1x1"}),
    "avoided already": restarting(status={"nodeFailures": [failures(avoidedLabel=HOSTNAME, avoidedValue="bad")]}),
    "lifted": restarting(status={"nodeFailures": [failures(lifted=True)]}),
    "as many as may be": restarting(
        status={
            "nodeFailures": [
                *(failures(f"n{i}", avoidedLabel=HOSTNAME, avoidedValue=f"n{i}") for i in range(MOST_AVOIDED)),
                failures(),
            ]
        }
    ),
    "another node that crashed once": restarting(
        status={"nodeFailures": [failures(), failures("other", 1)]},
        node_labels={"other": {HOSTNAME: "other.example"}},
    ),
    "the budget is spent": restarting(status={"restarts.charged": 4}),
}


@pytest.mark.parametrize("name", NOT_AVOIDED)
def test_nothing_is_avoided(name: str) -> None:
    seen = NOT_AVOIDED[name]
    after = decide(seen, SETTINGS).status
    assert after.incarnation == 1
    assert after.node_failures == seen.status.node_failures


def test_exit_code_that_is_not_known_is_not_named() -> None:
    status = {"nodeFailures": [{"node": "bad", "failures": 2}]}
    assert "not known" in (decide(restarting(status=status), SETTINGS).status.message or "")


MULTI_HOST = {"accelerator": "v5e-16"}


@pytest.mark.parametrize(
    ("spec", "label", "value"),
    [({}, HOSTNAME, "bad.example"), ({"accelerator": "v5e-8"}, HOSTNAME, "bad.example"), (MULTI_HOST, POOL, "pool-1")],
    ids=["processors", "one host", "a slice that takes a pool"],
)
def test_a_slice_avoids_the_whole_pool(spec: dict[str, Any], label: str, value: str) -> None:
    entries = decide(restarting(spec=spec), SETTINGS).status.node_failures
    assert avoided(entries) == ((label, value),)


def test_two_nodes_of_a_pool_are_one() -> None:
    known = [
        *(failures(f"n{i}", avoidedLabel=POOL, avoidedValue=f"pool-{i}") for i in range(1, MOST_AVOIDED + 1)),
        failures(),
    ]
    seen = restarting(spec=MULTI_HOST, status={"nodeFailures": known})
    entries = decide(seen, SETTINGS).status.node_failures or []
    assert entries[-1].avoided_value == "pool-1"


def test_the_pause_goes_on_in_the_new_incarnation() -> None:
    books = {
        "internal.restartsWithoutProgress": 2,
        "internal.restartedAtStep": 40,
        "internal.restartTime": format_time(NOW),
    }
    status = status_of(decide(restarting(status=books), SETTINGS))
    made = jobset(uid="new", suspended=True, incarnation=2)
    paused = decide(observed(job(status=status), jobset=made), SETTINGS)
    assert (paused.status.phase, paused.step, paused.requeue_after_seconds) == ("Restarting", None, 10)
    assert "a crash on node bad" in (paused.status.message or "")
    later = observed(job(status=status_of(paused)), jobset=made, now=NOW + timedelta(seconds=10))
    assert decide(later, SETTINGS).step is Step.RESUME


def test_restarts_count_on_over_incarnations() -> None:
    status = recorded(total=2, earlierRestarts=2, charged=2, crashedAtStep=0, incarnation=2)
    again = jobset(restarts=1, incarnation=2)
    seen = observed(job(status=status), jobset=again, hosts=(host(0, attempt=1),), ended=(ended(0, 1, node="c"),))
    after = decide(seen, SETTINGS).status
    assert (after.restarts.total, after.restarts.charged, after.internal.booked_restarts) == (3, 3, 1)


WAITS = host(0, ready=False, unschedulable="0/1 nodes are available: 1 node(s) didn't match affinity.")


def waiting(seconds: float, *notices: Notice) -> Observed:
    since = format_time(NOW - timedelta(seconds=seconds))
    entries = [failures(avoidedLabel=HOSTNAME, avoidedValue="bad.example")]
    status = recorded("WaitingForCapacity", phaseTime=since, nodeFailures=entries, incarnation=2)
    return observed(
        job(status=status), jobset=jobset(incarnation=2), hosts=(WAITS,), capacity_notices=notices, node_labels=LABELS
    )


COMING = Notice(reason="TriggeredScaleUp", message="pool-2: 0->1", last_seen=NOW)
REFUSED = Notice(reason="NotTriggerScaleUp", message="1 node(s) didn't match affinity", last_seen=NOW)


@pytest.mark.parametrize(
    ("seen", "is_lifted"),
    [
        (waiting(LIFTED_AFTER_SECONDS - 1), False),
        (waiting(LIFTED_AFTER_SECONDS), True),
        (waiting(LIFTED_AFTER_SECONDS, REFUSED), True),
        (waiting(10 * LIFTED_AFTER_SECONDS, COMING), False),
        (replace(waiting(LIFTED_AFTER_SECONDS), hosts=BOTH), False),
    ],
    ids=["a moment early", "in time", "no pool fits", "a machine is being made", "all have come"],
)
def test_avoidance_ends_where_there_is_no_other_machine(seen: Observed, is_lifted: bool) -> None:
    decision = decide(seen, SETTINGS)
    (entry,) = decision.status.node_failures or []
    assert (entry.lifted, entry.avoided_label is None) == (is_lifted, is_lifted)
    assert decision.status.incarnation == (3 if is_lifted else 2)
    if is_lifted:
        assert decision.note is not None
        assert decision.note.reason == Reason.AVOIDANCE_LIFTED
        assert "Incarnation 3 may use" in decision.note.message
        again = decide(observed(job(status=status_of(decision)), node_labels=LABELS), SETTINGS)
        assert again.manifest is not None
        assert "affinity" not in str(again.manifest)


@pytest.mark.parametrize("change", [{"internal.retry": 1}, {"args": ["x"]}], ids=["internal.retry", "edit"])
def test_retry_and_edit_forget_what_is_avoided(change: dict[str, Any]) -> None:
    entries = [failures(avoidedLabel=HOSTNAME, avoidedValue="bad.example")]
    status = recorded("Failed", nodeFailures=entries, specHash="another", total=3, earlierRestarts=2)
    after = status_of(decide(observed(job(status=status, generation=2, **change)), SETTINGS))
    assert (after["incarnation"], after.keys() & {"nodeFailures", "internal.earlierRestarts", "restarts.total"}) == (
        2,
        set(),
    )


def test_a_new_incarnation_is_said_while_it_is_made() -> None:
    status = status_of(decide(restarting(), SETTINGS))
    after = decide(observed(job(status=status), jobset=jobset(restarts=2, being_deleted=True)), SETTINGS).status
    assert condition(flat(after.as_stored()), Type.RUNNING) == ("False", Reason.REMAKING)
    assert after.node_failures is not None
