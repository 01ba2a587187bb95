"""When a job may start again as a new incarnation without losing anything, and what that incarnation keeps.

The pods of a JobSet are all made from one template that cannot change, so a change of it requires a new JobSet.
"""

from collections.abc import Sequence

from tpujob_operator.decide.verdict import Record, Statement, Verdict
from tpujob_operator.observe.state import JobSetState, Observed
from tpujob_resource.models.status import NodeFailures


def is_between_attempts(observed: Observed, jobset: JobSetState) -> bool:
    """Whether an attempt has ended and is recorded, and the next one is not complete: a new incarnation costs nothing.

    If all hosts are ready there may be progress, and an attempt that has just crashed is still to be judged.
    """
    return is_judged(observed, jobset) and not are_all_ready(observed, jobset)


def is_judged(observed: Observed, jobset: JobSetState) -> bool:
    """Whether every observed failure has been attributed to a cause."""
    if jobset.restarts > (observed.status.internal.booked_restarts or 0):
        return False
    return not any(end.attempt >= jobset.restarts and not end.is_consequence for end in observed.ended)


def are_all_ready(observed: Observed, jobset: JobSetState) -> bool:
    """Whether every host runs, or has finished."""
    return sum(host.ready or host.succeeded for host in observed.hosts) >= jobset.hosts


def same_run_anew(
    condition_update: Statement, entries: Sequence[NodeFailures], *, slices: int | None = None
) -> Verdict:
    """A verdict that starts another incarnation of the same run, which keeps its counts.

    Args:
        condition_update: Its phase and conditions.
        entries: Its failures by node.
        slices: Its number of slices; None: unchanged.
    """
    record = Record(new_incarnation=True, node_failures=tuple(entries), slices=slices)
    return Verdict(condition_update=condition_update, status_update=record, requeue_after_seconds=0)
