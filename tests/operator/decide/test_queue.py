"""Why a job waits in a queue, as its status says it."""

from datetime import timedelta

import pytest

from tests.operator.building import NOW, job, jobset, observed, recorded
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.chain import judge
from tpujob_operator.decide.verdict import Step
from tpujob_operator.observe.state import QueuePosition, QueueState
from tpujob_resource.messages.conditions import Reason

SINCE = NOW - timedelta(minutes=7)
NO_QUOTA = "couldn't assign flavors to pod set w: insufficient unused quota for google.com/tpu, 4 more needed"
MADE_ROOM = "Preempted to accommodate a workload (UID: …)"


def standing(ahead: int, ahead_in_queue: int) -> QueuePosition:
    return QueuePosition(ahead=ahead, ahead_in_queue=ahead_in_queue)


# what Kueue says: the reason, what the message ends with
STATES: dict[str, tuple[QueueState | None, Reason, str]] = {
    "nothing known": (None, Reason.IN_QUEUE, "to admit the job: `kubectl get workloads` says why."),
    "not looked at": (
        QueueState(since=SINCE),
        Reason.IN_QUEUE,
        "since 2030-01-01T11:53:00Z: Kueue has not looked at it yet.",
    ),
    "no quota": (QueueState(since=SINCE, message=NO_QUOTA), Reason.IN_QUEUE, f"{NO_QUOTA}."),
    "preempted": (
        QueueState(message=NO_QUOTA, eviction=MADE_ROOM, is_preempted=True, preempted_by="JobSet b/big"),
        Reason.IN_QUEUE,
        f"{NO_QUOTA}. Before, it was preempted by JobSet b/big.",
    ),
    "preempted by somebody": (
        QueueState(message=NO_QUOTA, eviction=MADE_ROOM, is_preempted=True),
        Reason.IN_QUEUE,
        "Before, it was preempted.",
    ),
    "evicted": (
        QueueState(message=NO_QUOTA, eviction="Exceeded the PodsReady timeout team/llama"),
        Reason.IN_QUEUE,
        "Before: Exceeded the PodsReady timeout team/llama.",
    ),
    "said twice": (QueueState(message=MADE_ROOM, eviction=MADE_ROOM), Reason.IN_QUEUE, f": {MADE_ROOM}."),
    "the next": (
        QueueState(message=NO_QUOTA, position=standing(0, 0)),
        Reason.IN_QUEUE,
        f"{NO_QUOTA}. It is the first in the ClusterQueue.",
    ),
    "the second": (
        QueueState(message=NO_QUOTA, position=standing(1, 0)),
        Reason.IN_QUEUE,
        "1 workload is ahead of it in the ClusterQueue, 0 of them in queue team-a.",
    ),
    "the eleventh": (
        QueueState(message=NO_QUOTA, position=standing(10, 4)),
        Reason.IN_QUEUE,
        "10 workloads are ahead of it in the ClusterQueue, 4 of them in queue team-a.",
    ),
    "the twelfth": (
        QueueState(position=standing(11, 4)),
        Reason.IN_QUEUE,
        " More than 10 workloads are ahead of it in the ClusterQueue.",
    ),
    "the twenty-first": (
        QueueState(position=standing(20, 4)),
        Reason.IN_QUEUE,
        " More than 10 workloads are ahead of it in the ClusterQueue.",
    ),
    "the last of many": (
        QueueState(position=standing(4321, 4)),
        Reason.IN_QUEUE,
        " More than 1000 workloads are ahead of it in the ClusterQueue.",
    ),
    "a check": (
        QueueState(has_quota=True, message="tpus: Provisioning Request is pending"),
        Reason.IN_QUEUE,
        ": tpus: Provisioning Request is pending.",
    ),
    "admitted": (QueueState(has_quota=True), Reason.IN_QUEUE, ": it is about to start."),
    "no such queue": (
        QueueState(cannot_be_admitted=True, message="LocalQueue team-a doesn't exist"),
        Reason.QUEUE_UNUSABLE,
        "LocalQueue team-a doesn't exist. Kueue tries again when that changes.",
    ),
    "no Kueue": (QueueState(is_installed=False), Reason.QUEUE_UNUSABLE, "apply it again without spec.queue."),
    "deactivated": (
        QueueState(cannot_be_admitted=True, is_deactivated=True, eviction="exceeded the maximum number of re-queuings"),
        Reason.QUEUE_UNUSABLE,
        "re-queuings. Set `spec.active` of the Workload to true to queue again.",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_wait_is_told_in_kueue_s_words(name: str) -> None:
    state, reason, end = STATES[name]
    seen = observed(job(status=recorded("Queued"), queue="team-a"), jobset=jobset(suspended=True), queue=state)
    verdict = judge(seen, Settings())
    assert (verdict.condition_update.phase, verdict.condition_update.reason) == ("Queued", reason)
    assert verdict.condition_update.message.endswith(end)
    assert verdict.condition_update.blocked == (
        (reason, verdict.condition_update.message) if reason is Reason.QUEUE_UNUSABLE else None
    )
    assert verdict.requeue_after_seconds == 15.0


def test_job_that_lost_its_place_says_to_whom() -> None:
    state = QueueState(eviction=MADE_ROOM, is_preempted=True, preempted_by="JobSet b/big")
    seen = observed(job(status=recorded(), queue="team-a"), jobset=jobset(suspended=True), pods_left=2, queue=state)
    message = judge(seen, Settings()).condition_update.message
    assert message.startswith("Queue team-a has taken its machines back for JobSet b/big; 2 pods")


def test_job_that_leaves_its_queue_is_looked_at_until_it_has_left() -> None:
    old = jobset(suspended=True, incarnation=1)
    left = observed(job(status={"incarnation": 2}, queue="team-a", suspend=True), jobset=old)
    leaves = observed(job(status=recorded(), queue="team-a", suspend=True), jobset=jobset())
    assert (judge(left, Settings()).action.step, judge(left, Settings()).requeue_after_seconds) == (Step.DELETE, 2.0)
    assert (judge(leaves, Settings()).action.step, judge(leaves, Settings()).requeue_after_seconds) == (None, 0)


def test_eviction_by_nobody_in_particular_gives_its_reason() -> None:
    state = QueueState(eviction="Exceeded the PodsReady timeout.")
    seen = observed(job(status=recorded(), queue="team-a"), jobset=jobset(suspended=True), pods_left=2, queue=state)
    message = judge(seen, Settings()).condition_update.message
    assert message.startswith("Queue team-a has taken its machines back (Exceeded the PodsReady timeout); 2 pods")


def test_eviction_that_is_the_message_is_said_once() -> None:
    state, _, _ = STATES["said twice"]
    seen = observed(job(status=recorded("Queued"), queue="team-a"), jobset=jobset(suspended=True), queue=state)
    assert judge(seen, Settings()).condition_update.message.count(MADE_ROOM) == 1
