"""What was taken away in an attempt, kept in status as evidence.

A pod that was evicted is readable for seconds, and an operator may be replaced before the attempt can be judged: its
successor would see only the crashes that followed. So the first disruption of the newest attempt is written down as
soon as it is seen, and read back as evidence beside what is seen then.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tpujob_operator.observe.state import Ended, LostNode, Observed
from tpujob_operator.times import format_time, parse_time

LONG_AGO = datetime.min.replace(tzinfo=UTC)


def disruption_to_record(observed: Observed) -> dict[str, Any] | None:
    """The disruption to keep: of the newest attempt that has one, a node that is not well before a pod that was asked.

    None when there is none, or when the job rests: pods that stop because of that are no disruption.
    """
    recorded = observed.status.get("disruption")
    if observed.jobset is None or observed.jobset.suspended:
        return None
    found = [*map(_from_node, observed.lost_nodes), *(_from_end(end) for end in observed.ended if _is_evidence(end))]
    if recorded:
        found.append(dict(recorded))
    # Of equal ones the recorded one stays: it comes last in the list, and first by this.
    return min(reversed(found), key=_order, default=None)


def recorded_disruption(observed: Observed) -> Ended | None:
    """The pod that was taken away first, as far as status knows it."""
    record = observed.status.get("disruption")
    if not record or record.get("exitCode") is None:
        return None
    return Ended(
        pod=record.get("pod") or "",
        slice_index=record.get("sliceIndex", 0),
        host_index=record.get("hostIndex", 0),
        attempt=record["attempt"],
        exit_code=record["exitCode"],
        message="",
        finished_at=parse_time(record.get("time")) or LONG_AGO,
        was_asked=True,
        asked_at=parse_time(record.get("askedAt")),
        is_disrupted=record.get("marked", False),
        node=record.get("node"),
    )


def recorded_lost_node(observed: Observed) -> LostNode | None:
    """The node that was not well, as far as status knows it."""
    record = observed.status.get("disruption")
    if not record or not record.get("trouble"):
        return None
    return LostNode(attempt=record["attempt"], name=record.get("node") or "", trouble=record["trouble"])


def _is_evidence(end: Ended) -> bool:
    return end.is_consequence and end.asked_at is not None


def _order(record: dict[str, Any]) -> tuple[Any, ...]:
    asked_at = parse_time(record.get("askedAt")) or datetime.max.replace(tzinfo=UTC)
    return (-record["attempt"], not record.get("trouble"), asked_at, not record.get("marked"))


def _from_node(node: LostNode) -> dict[str, Any]:
    return {"attempt": node.attempt, "node": node.name, "trouble": node.trouble}


def _from_end(end: Ended) -> dict[str, Any]:
    assert end.asked_at is not None  # or it is no evidence
    record = {
        "attempt": end.attempt,
        "pod": end.pod,
        "sliceIndex": end.slice_index,
        "hostIndex": end.host_index,
        "exitCode": end.exit_code,
        "askedAt": format_time(end.asked_at),
        "time": format_time(end.finished_at),
        "marked": end.is_disrupted,
    }
    return record if end.node is None else {**record, "node": end.node}
