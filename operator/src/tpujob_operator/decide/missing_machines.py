"""Hosts of an attempt that have no machine, kept in status as evidence.

Their peers wait for them, and end after `spec.startupSeconds`. JobSet then deletes all pods of the attempt, and those
of the next one have not waited yet: why the attempt ended is only known if it was recorded before.
"""

from __future__ import annotations

from tpujob_operator.observe.state import Host, Observed
from tpujob_resource.models.status import Unschedulable

MESSAGE_LENGTH = 1024


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
