"""Why an attempt failed: a crash of the user's program, a disruption, or unexplained.

A lost host first appears as crashes on other hosts. So the first end counts, and the conditions of pods and nodes count
more than exit codes. A process whose message says that it lost another one did not crash by itself.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from tpujob_contract.exit_codes import FATAL, ExitCode, describe
from tpujob_contract.reports import termination_message
from tpujob_contract.reports.termination_message import RETURNED_0
from tpujob_operator.decide.causes.evidence import (
    may_follow_the_restart,
    recorded_disruption,
    recorded_lost_node,
    recorded_missing,
)
from tpujob_operator.decide.causes.first_failure import first_of, recorded_asking, recorded_end
from tpujob_operator.observe.state import Ended, Leaving, Observed
from tpujob_resource.messages.conditions import ended
from tpujob_resource.models.restart_causes import Cause
from tpujob_resource.models.status import Unschedulable
from tpujob_resource.models.times import format_time

CLOCKS_DIFFER = timedelta(minutes=1)
"""More than synchronized clocks differ: a time later than now by more than this is wrong."""


@dataclass(frozen=True, kw_only=True)
class AttemptCause:
    """The cause of an attempt's end and a sentence about it."""

    cause: Cause
    message: str
    crashed: Ended | None = None
    """The first failure, if the cause is a crash."""


def of_attempt(observed: Observed, attempt: int) -> AttemptCause:
    """The cause of the end of an attempt, from all its observed ends."""
    ends = [end for end in _all_ends(observed) if end.attempt == attempt]
    recorded_node = recorded_lost_node(observed)
    for node in (*observed.lost_nodes, *([] if recorded_node is None else [recorded_node])):
        if node.attempt == attempt:
            return AttemptCause(cause=Cause.DISRUPTION, message=f"Node {node.name} {node.trouble}.")
    unasked = [end for end in ends if not end.was_asked]
    asked: list[Ended | Leaving] = [end for end in ends if end.was_asked and _disrupts(end, unasked, observed.now)]
    deleted = min(asked, key=_asked_at, default=None)
    if not unasked:
        asked = [end for end in asked if not may_follow_the_restart(observed, end)]
    else:
        # Pods that are in their grace period explain the ends of their peers.
        asked += [pod for pod in observed.leaving if pod.attempt == attempt and _disrupts(pod, unasked, observed.now)]
    if asked:
        message = _disruption_message(min(asked, key=_asked_at)) + _finished_early(ends)
        return AttemptCause(cause=Cause.DISRUPTION, message=message)
    own = [end for end in unasked if not end.is_consequence]
    first = first_of(own)
    named = None if first is None or first.exit_code in FATAL else termination_message.named_in(first.message)
    if first is not None and named is None:
        missing = recorded_missing(observed, attempt)
        if missing is not None and first.exit_code == ExitCode.PEERS_MISSING:
            return AttemptCause(cause=Cause.CAPACITY, message=_missing_message(observed, missing))
        what = f"slice {first.slice_index} host {first.host_index} (pod {first.pod})"
        message = f"{what} failed with exit code {describe(first.exit_code)}."
        return AttemptCause(cause=Cause.CRASH, message=message, crashed=first)
    stopped = first_of(end for end in unasked if end.is_consequence)
    if stopped is not None:
        asks = f"ended with exit code {ExitCode.STOPPED}, by which a program asks to be started again"
        what = f"Pod {stopped.pod} {asks}, and nobody is known to have asked it to stop."
        return AttemptCause(cause=Cause.UNEXPLAINED, message=what)
    if first is not None:
        # That pod was gone before its end was observed, or the network between them failed.
        what = f"Pod {first.pod} lost process {named}, and nobody saw how that one ended."
        return AttemptCause(cause=Cause.UNEXPLAINED, message=what)
    if deleted is not None:
        what = (
            f"{_disruption_message(deleted)[:-1]}, maybe because others had failed: nobody saw how all of them ended."
        )
        return AttemptCause(cause=Cause.UNEXPLAINED, message=what)
    return AttemptCause(cause=Cause.UNEXPLAINED, message="Nobody saw how it ended.")


def fatal_end(observed: Observed) -> Ended | None:
    """The first end with an exit code after which a restart does not help; None: there is none."""
    return first_of(end for end in _all_ends(observed) if end.exit_code in FATAL)


def _all_ends(observed: Observed) -> list[Ended]:
    """The observed ends, and those that status recorded of other pods, with fewer details."""
    seen = {(end.pod, end.attempt) for end in observed.ended}
    recorded = (recorded_end(observed), recorded_asking(observed), recorded_disruption(observed))
    return [*observed.ended, *(end for end in recorded if end is not None and (end.pod, end.attempt) not in seen)]


def _disrupts(pod: Ended | Leaving, unasked: list[Ended], now: datetime) -> bool:
    """Whether a pod that was asked to stop explains all other ends, because it was asked before any of them.

    Exit code 75 does not prove a request: a program may exit with it by itself. The Job controller deletes the peers of
    a failed pod a moment later, and that deletion is a consequence.
    """
    if not unasked:
        return True
    if pod.asked_at is None:
        # Without a time it explains ends with the message "asked to stop", but no crash.
        return pod.is_disrupted and all(end.is_consequence for end in unasked)
    made = min((end.created_at for end in unasked if end.created_at is not None), default=None)
    if made is not None and pod.asked_at < made:
        # The attempt was suspended and resumed: this pod was asked before the failed ones were created.
        return False
    first = min(end.finished_at for end in unasked)
    if max(pod.asked_at, first) > now + CLOCKS_DIFFER:
        return _was_seen_first(pod, unasked)  # the clock of a machine is wrong, and it is not known which one
    if pod.asked_at != first:
        return pod.asked_at < first
    return pod.is_disrupted or _was_seen_first(pod, unasked)


def _was_seen_first(pod: Ended | Leaving, unasked: list[Ended]) -> bool:
    """Whether the API server stored the request before any of these ends: times only have seconds."""
    versions = [end.version for end in unasked if end.version is not None]
    return (
        pod.asked_version is not None and len(versions) == len(unasked) and all(pod.asked_version < v for v in versions)
    )


def _disruption_message(end: Ended | Leaving) -> str:
    where = f"Pod {end.pod}" + (f" on node {end.node}" if end.node else "")
    if end.is_disrupted:
        return f"{where} was evicted, preempted or shut down with its node."
    return f"{where} was deleted."


def _finished_early(ends: list[Ended]) -> str:
    """A sentence about a program that returned 0 when it was asked to stop; empty: none did."""
    early = next((end.pod for end in ends if any(RETURNED_0 in line for line in end.message.splitlines()[:8])), None)
    if early is None:
        return ""
    return (
        f" The program of pod {early} returned 0 when it was asked to stop, before its job was done, so its end counts "
        f"as exit code {ExitCode.STOPPED}."
    )


def _missing_message(observed: Observed, missing: Unschedulable) -> str:
    return (
        f"No machine for {missing.hosts} since {format_time(missing.since)}: {ended(missing.message)} The other hosts "
        f"ended after spec.startupSeconds ({observed.spec.startup_seconds} s), for which they wait."
    )


def _asked_at(end: Ended | Leaving) -> tuple[datetime, int, int]:
    asked_at = end.finished_at if isinstance(end, Ended) and end.asked_at is None else end.asked_at
    assert asked_at is not None  # a pod that has not ended has one
    return (asked_at, end.slice_index, end.host_index)
