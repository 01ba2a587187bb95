"""Why an attempt failed: a crash of the user's, a disruption, or nobody knows.

A lost host shows up first as crashes elsewhere, so what ended first counts, and what Kubernetes says of pods and nodes
counts more than exit codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tpujob_contract.exit_codes import FATAL, ExitCode, describe
from tpujob_operator.decide.disruption_record import recorded_disruption, recorded_lost_node
from tpujob_operator.decide.first_failure import recorded_end
from tpujob_operator.decide.missing_machines import recorded_missing
from tpujob_operator.observe.state import Ended, Observed
from tpujob_resource.messages.conditions import ended
from tpujob_resource.models.status import Unschedulable
from tpujob_resource.models.times import format_time


class Cause(StrEnum):
    """What a restart is put down to."""

    CRASH = "Crash"
    """Something failed by itself: it is charged."""
    DISRUPTION = "Disruption"
    """Something was taken away or asked to stop, and the rest followed: it is free."""
    UNEXPLAINED = "Unexplained"
    """Nobody saw how it ended; never counted as a crash."""
    CAPACITY = "Capacity"
    """Machines for some hosts did not come, and the others had waited long enough: it is free."""
    SUSPENSION = "Suspension"
    """The job was being suspended: no restart of the job, though JobSet counts it."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The cause of an attempt's end and a sentence about it."""

    cause: Cause
    message: str
    crashed: Ended | None = None
    """The first failure, of a crash."""


def of_attempt(observed: Observed, attempt: int) -> Finding:
    """What one attempt's end is put down to, by all that was seen of it."""
    ends = [end for end in _all_ends(observed) if end.attempt == attempt]
    recorded_node = recorded_lost_node(observed)
    for node in (*observed.lost_nodes, *([] if recorded_node is None else [recorded_node])):
        if node.attempt == attempt:
            return Finding(cause=Cause.DISRUPTION, message=f"Node {node.name} {node.trouble}.")
    own = [end for end in ends if not end.is_consequence]
    disruption = min((end for end in ends if _disrupts(end, own)), key=_asked_at, default=None)
    if disruption is not None:
        return Finding(cause=Cause.DISRUPTION, message=_disruption_message(disruption))
    if own:
        first = min(own, key=lambda end: end.cause_order)
        missing = recorded_missing(observed, attempt)
        if missing is not None and first.exit_code == ExitCode.PEERS_MISSING:
            return Finding(cause=Cause.CAPACITY, message=_missing_message(observed, missing))
        what = f"slice {first.slice_index} host {first.host_index} (pod {first.pod})"
        message = f"{what} failed with exit code {describe(first.exit_code)}."
        return Finding(cause=Cause.CRASH, message=message, crashed=first)
    stopped = min(ends, key=lambda end: end.cause_order, default=None)
    if stopped is not None:
        what = f"Pod {stopped.pod} stopped as if it had been asked to, and nobody is known to have asked."
        return Finding(cause=Cause.UNEXPLAINED, message=what)
    return Finding(cause=Cause.UNEXPLAINED, message="Nobody saw how it ended.")


def fatal_end(observed: Observed) -> Ended | None:
    """An end after which no restart would help, whichever pod Kubernetes looked at first; the first of them."""
    fatal = (end for end in _all_ends(observed) if end.exit_code in FATAL)
    return min(fatal, key=lambda end: end.finished_at, default=None)


def _all_ends(observed: Observed) -> list[Ended]:
    recorded = (recorded_end(observed), recorded_disruption(observed))
    return [*observed.ended, *(end for end in recorded if end is not None)]


def _disrupts(end: Ended, own: list[Ended]) -> bool:
    """Whether this end explains all that failed by itself, because it was asked to stop before any of that."""
    if not own:
        # Code 75 without anybody who asked is no evidence: a program may give it for reasons of its own.
        return end.was_asked
    if end.asked_at is None:
        # A code that says "asked to stop" where nobody saw who asked explains no crash beside it.
        return False
    made = min((each.created_at for each in own if each.created_at is not None), default=None)
    if made is not None and end.asked_at < made:
        # Of an attempt that was suspended and resumed: pods that had left before those that failed were made.
        return False
    first = min(end.finished_at for end in own)
    # The Job controller deletes the peers of a failed pod; only Kubernetes' own mark tells which came first within a
    # second.
    return end.asked_at < first or (end.is_disrupted and end.asked_at == first)


def _disruption_message(end: Ended) -> str:
    where = f"Pod {end.pod}" + (f" on node {end.node}" if end.node else "")
    if end.is_disrupted:
        return f"{where} was evicted, preempted or shut down with its node."
    return f"{where} was deleted."


def _missing_message(observed: Observed, missing: Unschedulable) -> str:
    return (
        f"No machine for {missing.hosts} since {format_time(missing.since)}: {ended(missing.message)} The other hosts "
        f"ended after spec.startupSeconds ({observed.spec.startup_seconds} s), for which they wait."
    )


def _asked_at(end: Ended) -> tuple[datetime, int, int]:
    return (end.asked_at or end.finished_at, end.slice_index, end.host_index)
