"""Evidence about the newest attempt that is kept in status, because it is gone before the attempt can be judged.

- The first disruption, by the loss of a pod or node: an evicted pod is readable for seconds, and an operator that
  replaces this one would see only the crashes that followed.
- Hosts without a machine: their peers wait for them, and end after `spec.startupSeconds`. JobSet then deletes all pods
  of the attempt, and those of the next one have not waited yet.
"""

from datetime import UTC, datetime
from typing import Any

from tpujob_operator.decide.in_place import has_gone_on
from tpujob_operator.observe.state import Ended, Host, Leaving, LostNode, Observed
from tpujob_resource.models.status import Disruption, Unschedulable
from tpujob_resource.models.times import EARLIEST

MESSAGE_LENGTH = 1024


def disruption_to_record(observed: Observed) -> Disruption | None:
    """The disruption to record: of the newest attempt that has one, a lost node before a pod that was asked to stop.

    None: there is none, or the JobSet is missing or suspended: pods that stop because of that are no disruption.
    """
    recorded = observed.status.internal.disruption
    if observed.jobset is None or observed.jobset.suspended:
        return None
    if _has_gone_on(observed):
        recorded = None
    found = [
        *map(_from_node, observed.lost_nodes),
        *(_from_end(end) for end in observed.ended if _is_evidence(observed, end)),
    ]
    if recorded is not None:
        found.append(recorded)
    # Of equal ones the recorded one stays: it is last in the list, and first in the reversed one.
    return min(reversed(found), key=_order, default=None)


def _has_gone_on(observed: Observed) -> bool:
    """Whether all programs restarted in place after the recorded disruption, with another pod."""
    record = observed.status.internal.disruption
    if record is None or not record.trouble:
        return has_gone_on(observed, recorded_disruption(observed))
    return any(end.attempt == record.attempt and end.node == record.node for end in observed.replaced)


def recorded_disruption(observed: Observed) -> Ended | None:
    """The recorded end of the pod that was lost first; None: there is none."""
    record = observed.status.internal.disruption
    if record is None or record.exit_code is None:
        return None
    return Ended(
        pod=record.pod or "",
        slice_index=record.slice_index,
        host_index=record.host_index,
        attempt=record.attempt,
        exit_code=record.exit_code,
        message="",
        finished_at=record.time or EARLIEST,
        was_asked=True,
        asked_at=record.asked_at,
        is_disrupted=record.marked,
        node=record.node,
    )


def recorded_lost_node(observed: Observed) -> LostNode | None:
    """The recorded lost node; None: there is none."""
    record = observed.status.internal.disruption
    if record is None or not record.trouble:
        return None
    return LostNode(attempt=record.attempt, name=record.node or "", trouble=record.trouble)


def may_follow_the_restart(observed: Observed, pod: Ended | Leaving) -> bool:
    """Whether a pod may have been deleted because its JobSet restarts, and not the other way round.

    This is possible if the restart was counted before the deletion was observed, unless every pod of the attempt is
    known to have been asked to stop: then one of these deletions came first. It is not possible for a disruption that
    Kubernetes itself marks.
    """
    jobset, record = observed.jobset, observed.status.internal.disruption
    if jobset is None or pod.is_disrupted or pod.attempt >= jobset.restarts:
        return False
    if record is not None and (record.attempt, record.pod) == (pod.attempt, pod.pod):
        return False  # observed in time, by this process or its predecessor
    if pod.asked_version is None or jobset.restarts_version is None or pod.asked_version < jobset.restarts_version:
        return False
    asked: list[Ended | Leaving] = [*observed.ended, *observed.leaving]
    seen = {(each.slice_index, each.host_index) for each in asked if each.attempt == pod.attempt}
    return len(seen) < jobset.hosts


def _is_evidence(observed: Observed, end: Ended) -> bool:
    return end.was_asked and end.asked_at is not None and not may_follow_the_restart(observed, end)


def _order(record: Disruption) -> tuple[Any, ...]:
    asked_at = record.asked_at or datetime.max.replace(tzinfo=UTC)
    return (-record.attempt, not record.trouble, asked_at, not record.marked)


def _from_node(node: LostNode) -> Disruption:
    return Disruption(attempt=node.attempt, node=node.name, trouble=node.trouble)


def _from_end(end: Ended) -> Disruption:
    return Disruption(
        attempt=end.attempt,
        pod=end.pod,
        slice_index=end.slice_index,
        host_index=end.host_index,
        exit_code=end.exit_code,
        asked_at=end.asked_at,
        time=end.finished_at,
        marked=end.is_disrupted,
        node=end.node,
    )


def missing_to_record(observed: Observed) -> Unschedulable | None:
    """The hosts without a machine to record, of the newest attempt that has some.

    None: there are none, or all hosts have got machines, so that missing ones do not explain what happens next.
    """
    jobset, recorded = observed.jobset, observed.status.internal.unschedulable
    if jobset is None or jobset.suspended or jobset.uid != observed.status.internal.job_set_uid:
        return recorded
    # Not the pods of an attempt that JobSet does not count yet: the one before is still to be judged.
    hosts = [host for host in observed.hosts if host.attempt == jobset.restarts]
    missing = sorted((host for host in hosts if host.unschedulable is not None), key=_place)
    if missing:
        return _record(observed, missing)
    if recorded is not None and recorded.attempt == jobset.restarts and len(hosts) >= jobset.hosts:
        return None
    return recorded


def recorded_missing(observed: Observed, attempt: int) -> Unschedulable | None:
    """The recorded hosts without a machine of an attempt; None: there are none."""
    recorded = observed.status.internal.unschedulable
    return recorded if recorded is not None and recorded.attempt == attempt else None


def _record(observed: Observed, missing: list[Host]) -> Unschedulable:
    first = missing[0]
    before = recorded_missing(observed, first.attempt)
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    hosts = f"slice {first.slice_index} host {first.host_index} (pod {first.pod}){more}"
    if before is not None and before.hosts == hosts:
        return before  # the scheduler's message changes with every node, and each change would be a write
    return Unschedulable(
        attempt=first.attempt,
        hosts=hosts,
        since=observed.now.replace(microsecond=0) if before is None else before.since,
        message=(first.unschedulable or "")[:MESSAGE_LENGTH],
    )


def _place(host: Host) -> tuple[int, int]:
    return host.slice_index, host.host_index
