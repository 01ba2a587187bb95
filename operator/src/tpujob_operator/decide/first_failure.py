"""Which host failed first, of those that anybody saw: the job's failure as status shows it.

A lost host shows up as crashes elsewhere, and pods are readable for seconds only. So the answer is written down as soon
as there is one, and replaced when a better cause of the same attempt, or a later attempt's, is seen.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tpujob_contract.exit_codes import FATAL
from tpujob_operator.observe.state import Ended, Observed
from tpujob_operator.times import format_time, parse_time

MESSAGE_LENGTH = 1500


def first_failure(observed: Observed) -> dict[str, Any] | None:
    """The failure to show: one that no restart can help, or the likeliest first cause of the newest failed attempt.

    None when none was ever seen.
    """
    recorded = observed.status.get("failure")
    seen = list(observed.ended)
    before = recorded_end(observed)
    if before is not None:
        seen.append(before)
    # What was asked to end (suspend, eviction) is a failure of the job only when the JobSet failed, or when its code
    # says that no restart would help.
    if observed.jobset is None or observed.jobset.outcome != "Failed":
        seen = [end for end in seen if not end.is_consequence or end.exit_code in FATAL]
    if not seen:
        return dict(recorded) if recorded else None
    newest = max(end.attempt for end in seen)
    telling = [end for end in seen if end.attempt == newest or end.exit_code in FATAL]
    first = min(telling, key=lambda end: end.cause_order)
    if recorded and first.pod == recorded["pod"] and first.attempt == recorded.get("attempt", 0):
        return dict(recorded)
    return _to_status(first)


def recorded_end(observed: Observed) -> Ended | None:
    """The recorded failure, as evidence beside what is seen now; its position only breaks ties, in its favour."""
    failure = observed.status.get("failure")
    if not failure or failure.get("exitCode") is None:
        return None
    return Ended(
        pod=failure.get("pod") or "",
        slice_index=failure.get("sliceIndex", 0),
        host_index=failure.get("hostIndex", 0),
        attempt=failure.get("attempt", 0),
        exit_code=failure["exitCode"],
        message=failure.get("message", ""),
        finished_at=parse_time(failure.get("time")) or datetime.min.replace(tzinfo=UTC),
    )


def _to_status(end: Ended) -> dict[str, Any]:
    return {
        "host": f"slice {end.slice_index} host {end.host_index}",
        "sliceIndex": end.slice_index,
        "hostIndex": end.host_index,
        "pod": end.pod,
        "exitCode": end.exit_code,
        "message": end.message[-MESSAGE_LENGTH:],
        "attempt": end.attempt,
        "time": format_time(end.finished_at),
    }
