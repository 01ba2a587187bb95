"""The host that failed first, of the observed ones: the job's failure as status shows it.

A lost host appears as crashes on other hosts, and pods are readable for seconds only. So the failure is recorded as
soon as there is one, and replaced by an earlier cause of the same attempt, or by one of a later attempt.
"""

from collections.abc import Iterable

from tpujob_contract.exit_codes import FATAL, ExitCode
from tpujob_contract.reports import first_end, termination_message
from tpujob_operator.decide.in_place import has_gone_on
from tpujob_operator.observe.state import Ended, Observed
from tpujob_resource.models.status import Failure
from tpujob_resource.models.times import EARLIEST

MESSAGE_LENGTH = 1500


def first_failure(observed: Observed) -> Failure | None:
    """The failure to show: a fatal one, or the most likely first cause of the newest failed attempt.

    None: there is none.
    """
    recorded = observed.status.failure
    seen = list(observed.ended)
    before = recorded_end(observed)
    if has_gone_on(observed, before):
        recorded = before = None
    if before is not None:
        seen.append(before)
    # An end on request (suspend, eviction) is a failure of the job only if the JobSet failed, or its code is fatal.
    if observed.jobset is None or observed.jobset.outcome != "Failed":
        seen = [end for end in seen if not end.is_consequence or end.exit_code in FATAL]
    newest = max((end.attempt for end in seen), default=0)
    telling = [end for end in seen if end.attempt == newest or end.exit_code in FATAL]
    first = first_of(telling)
    if first is None:
        return recorded
    if recorded is not None and first.pod == recorded.pod and first.attempt == (recorded.attempt or 0):
        return recorded
    return _to_status(first)


def asked_again(observed: Observed) -> Failure | None:
    """The first process of the newest attempt in which one ended with 75 without a request to stop.

    None while the job is suspended. It is not a failure to show, but evidence: the Job controller deletes the peers a
    moment later, and that deletion alone would look like the cause.
    """
    recorded, before = observed.status.internal.asked_again, recorded_asking(observed)
    if has_gone_on(observed, before):
        recorded = before = None
    if observed.jobset is None or observed.jobset.suspended:
        return None
    seen = [end for end in observed.ended if end.exit_code == ExitCode.STOPPED and not end.was_asked]
    if before is not None:
        seen.append(before)
    newest = max((end.attempt for end in seen), default=0)
    first = first_of(end for end in seen if end.attempt == newest)
    if first is None or (before is not None and (first.pod, first.attempt) == (before.pod, before.attempt)):
        return recorded
    return _to_status(first)


def first_of(ends: Iterable[Ended]) -> Ended | None:
    """The end from which the others of an attempt follow; None: there are no ends."""
    by_place = sorted(ends, key=lambda end: (end.slice_index, end.host_index))
    return first_end.first_of(by_place, _known_of) if by_place else None


def _known_of(end: Ended) -> first_end.ProcessEnd:
    failed_at = termination_message.failed_at(end.message)
    return first_end.ProcessEnd(
        end.exit_code,
        end.finished_at.timestamp() if failed_at is None else failed_at,
        names_another=termination_message.named_in(end.message) is not None,
        # Also with exit code 75, if the operator did not see a request: a peer may have passed one on.
        was_asked=end.is_consequence,
        is_own_time=failed_at is not None,
        is_cut=failed_at is None,
    )


def recorded_asking(observed: Observed) -> Ended | None:
    """The recorded process that asked to be started again, as evidence besides the current observation."""
    return _to_end(observed.status.internal.asked_again)


def recorded_end(observed: Observed) -> Ended | None:
    """The recorded failure, as evidence besides the observed ends; its position only breaks ties, in its favour."""
    return _to_end(observed.status.failure)


def _to_end(failure: Failure | None) -> Ended | None:
    if failure is None or failure.exit_code is None:
        return None
    return Ended(
        pod=failure.pod or "",
        slice_index=failure.slice_index or 0,
        host_index=failure.host_index or 0,
        attempt=failure.attempt or 0,
        exit_code=failure.exit_code,
        message=failure.message or "",
        finished_at=failure.time or EARLIEST,
        node=failure.node,
    )


def _to_status(end: Ended) -> Failure:
    return Failure(
        host=f"slice {end.slice_index} host {end.host_index}",
        slice_index=end.slice_index,
        host_index=end.host_index,
        pod=end.pod,
        node=end.node,
        exit_code=end.exit_code,
        message=termination_message.shortened(end.message, MESSAGE_LENGTH),
        attempt=end.attempt,
        time=end.finished_at,
    )
