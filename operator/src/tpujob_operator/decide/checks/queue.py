"""What a job with a queue waits for, and what `spec.suspend` means for it.

Kueue owns the suspension of a JobSet that names a queue: it resumes what it has admitted, no matter which client
suspended it. So a suspended job gives up its JobSet, and with it its place and its quota; the next incarnation queues
again and continues from the checkpoints.
"""

from bisect import bisect_left

from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.verdict import BACKSTOP_SECONDS, POLL_SECONDS, Action, Record, Statement, Step, Verdict
from tpujob_operator.observe.state import Observed, QueueState
from tpujob_resource.jobset.environment import grace_seconds
from tpujob_resource.messages.conditions import Reason, ended, sentence
from tpujob_resource.models.phases import Phase
from tpujob_resource.models.times import format_time

NOT_INSTALLED = (
    "this cluster does not know the Workloads of Kueue (kueue.x-k8s.io). Install Kueue, or delete this job and apply "
    "it again without spec.queue."
)
DEACTIVATED = "its Workload is deactivated{why} Set `spec.active` of the Workload to true to queue again."

ROUNDED_AHEAD = (10, 20, 50, 100, 200, 500, 1000)
"""Numbers up to the first of these are shown exactly, others as more than one of these: each admission moves all
waiting jobs, and must not change the status of thousands."""


def is_suspended_without_jobset(observed: Observed) -> bool:
    """Whether the job is to be suspended and has a queue, which would resume its JobSet."""
    return bool(observed.spec.queue) and observed.spec.suspend


def leaving_queue(observed: Observed, settings: Settings, *, step: Step | None = None, renew: bool = False) -> Verdict:
    """The verdict while the JobSet of a suspended job is deleted; it exists until its pods are gone."""
    grace = grace_seconds(observed.spec, settings)
    message = sentence(Reason.LEAVING_QUEUE, queue=observed.spec.queue, grace=grace)
    return Verdict(
        condition_update=Statement(Phase.STOPPING, Reason.LEAVING_QUEUE, message),
        action=Action(step),
        status_update=Record(new_incarnation=renew, hosts_ready=0),
        requeue_after_seconds=0 if renew else POLL_SECONDS,
    )


def waiting(observed: Observed) -> Verdict:
    """The verdict while nothing runs because Kueue has not admitted the job."""
    queue, state = observed.spec.queue, observed.queue
    obstacle = None if state is None else _obstacle(state)
    if obstacle is not None:
        reason, message = Reason.QUEUE_UNUSABLE, sentence(Reason.QUEUE_UNUSABLE, queue=queue, detail=obstacle)
        condition_update = Statement(Phase.QUEUED, reason, message, blocked=(reason, message))
    else:
        since = "" if state is None or state.since is None else f" since {format_time(state.since)}"
        message = sentence(Reason.IN_QUEUE, queue=queue, since=since, detail=_detail(state) + _standing(state, queue))
        condition_update = Statement(Phase.QUEUED, Reason.IN_QUEUE, message)
    return Verdict(
        condition_update=condition_update, status_update=Record(hosts_ready=0), requeue_after_seconds=BACKSTOP_SECONDS
    )


def why_taken_back(observed: Observed) -> str:
    """Why Kueue evicted the job, as the end of a sentence; empty: unknown."""
    state = observed.queue
    if state is None or not state.eviction:
        return ""
    return f" for {state.preempted_by}" if state.preempted_by else f" ({state.eviction.rstrip('.')})"


def _obstacle(state: QueueState) -> str | None:
    """An obstacle that waiting alone does not remove; None: there is none."""
    if not state.is_installed:
        return NOT_INSTALLED
    if state.is_deactivated:
        return DEACTIVATED.format(why=f": {ended(state.eviction)}" if state.eviction else ".")
    return f"{ended(state.message)} Kueue tries again when that changes." if state.cannot_be_admitted else None


def _standing(state: QueueState | None, queue: str | None) -> str:
    """A sentence with the position, to follow another one; empty: unknown."""
    position = None if state is None else state.position
    if position is None:
        return ""
    if position.ahead == 0:
        return " It is the first in the ClusterQueue."
    if position.ahead > ROUNDED_AHEAD[0]:
        more_than = ROUNDED_AHEAD[bisect_left(ROUNDED_AHEAD, position.ahead) - 1]
        return f" More than {more_than} workloads are ahead of it in the ClusterQueue."
    ahead = "1 workload is" if position.ahead == 1 else f"{position.ahead} workloads are"
    return f" {ahead} ahead of it in the ClusterQueue, {position.ahead_in_queue} of them in queue {queue}."


def _detail(state: QueueState | None) -> str:
    if state is None:
        return "`kubectl get workloads` says why."
    wait = state.message or ("it is about to start" if state.has_quota else "Kueue has not looked at it yet")
    if not state.eviction or state.eviction == state.message:
        return ended(wait)
    by = f" by {state.preempted_by}" if state.preempted_by else ""
    before = f"Before, it was preempted{by}." if state.is_preempted else f"Before: {ended(state.eviction)}"
    return f"{ended(wait)} {before}"
