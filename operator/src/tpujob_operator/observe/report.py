"""The report of process 0: served at /report while it runs, and left in its termination message when it ends.

The user's pod writes it, so every value is checked; the trainer may have any version, so absent values are unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tpujob_contract.reports.report import Report, split_final_report
from tpujob_operator.observe.in_place import InPlaceAccount, account_from_report
from tpujob_operator.observe.untrusted import (
    clean_text,
    finite_number,
    non_negative,
    parse_json,
    read_time,
    whole_number,
)

TEXT_LENGTH = 500
PHASE_LENGTH = 40
MOST_PHASES = 32


@dataclass(frozen=True, kw_only=True)
class UnitCounts:
    """The joint progress of workers that share a list of units."""

    total: int
    done: int
    claimed: int | None = None
    rows_per_second: float | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    """How often a unit was not finished, by cause."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The report of process 0; None: unknown."""

    phase: str
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    committed_step: int | None = None
    committed_at: datetime | None = None
    message: str = ""
    is_checkpoint_healthy: bool | None = None
    """Whether saves succeed."""
    checkpoint_failing_since: datetime | None = None
    checkpoint_message: str = ""
    """The error of the last failed save."""
    is_data_healthy: bool | None = None
    """Whether data comes as fast as it is used."""
    data_wait_fraction: float | None = None
    """Part of the time that steps wait for data, 0 to 1."""
    data_message: str = ""
    """What is slow."""
    goodput: Mapping[str, int] = field(default_factory=dict)
    """Seconds by phase, over all attempts."""
    units: UnitCounts | None = None
    """Of a job whose workers share units."""
    straggler_message: str | None = None
    """Which processes the others wait for; empty: none."""
    preflight_message: str | None = None
    """Which hosts are slow or unusual; empty: none."""
    in_place_restarts: int | None = None
    """How often all programs have started again in the pods that run."""
    in_place_cause: str | None = None
    """Why the last of these attempts ended."""
    in_place: InPlaceAccount | None = None
    """How they ended."""
    is_final: bool = False
    """Whether a process left this at its end."""


def progress_from_report(given: Any) -> Progress:
    """The part of a report that goes into status.

    Raises:
        ValueError: it is not a JSON object.
    """
    if not isinstance(given, dict):
        raise ValueError("a report is a JSON object")  # noqa: TRY004 — received data, not an argument
    # For the names of its fields; their types are checked one by one.
    report: Report = given  # type: ignore[assignment]
    failing_since = read_time(report.get("checkpoint_failing_since"))
    fraction = finite_number(report.get("data_wait_fraction"))
    return Progress(
        phase=clean_text(report.get("phase"), limit=PHASE_LENGTH),
        step=whole_number(report.get("step")),
        steps=whole_number(report.get("steps")),
        loss=finite_number(report.get("loss")),
        tokens_per_second=non_negative(report.get("tokens_per_second")),
        committed_step=whole_number(report.get("committed_step")),
        committed_at=read_time(report.get("committed_time")),
        message=clean_text(report.get("message"), limit=TEXT_LENGTH),
        is_checkpoint_healthy=failing_since is None if "checkpoint_failing_since" in report else None,
        checkpoint_failing_since=failing_since,
        checkpoint_message=clean_text(report.get("checkpoint_message"), limit=TEXT_LENGTH),
        is_data_healthy=not report["data_slow_message"] if "data_slow_message" in report else None,
        data_wait_fraction=fraction if fraction is not None and 0 <= fraction <= 1 else None,
        data_message=clean_text(report.get("data_slow_message"), limit=TEXT_LENGTH),
        goodput=_counts(report.get("goodput")),
        units=_units(report),
        straggler_message=_text(report, "straggler_message"),
        preflight_message=_text(report, "preflight_message"),
        in_place_restarts=whole_number(report.get("in_place_restarts")),
        in_place_cause=_text(report, "in_place_cause"),
        in_place=account_from_report(given),
    )


def _text(report: Mapping[str, Any], name: str) -> str | None:
    return clean_text(report[name], limit=TEXT_LENGTH) if name in report else None


def _units(report: Report) -> UnitCounts | None:
    total, done = whole_number(report.get("units")), whole_number(report.get("units_done"))
    if total is None or done is None or done > total:
        return None
    return UnitCounts(
        total=total,
        done=done,
        claimed=whole_number(report.get("units_claimed")),
        rows_per_second=non_negative(report.get("rows_per_second")),
        failures=_counts(report.get("unit_failures")),
    )


def final_report(termination_message: str) -> Progress | None:
    """The last report of a process that has ended, from its termination message; None: it left no valid one.

    An operator that polls every few seconds may otherwise miss the last state.
    """
    _, found = split_final_report(termination_message)
    if found is None:
        return None
    try:
        return progress_from_report(parse_json(found))
    except ValueError:
        return None


def without_final_report(termination_message: str) -> str:
    """The human-readable part of a termination message."""
    words, _ = split_final_report(termination_message)
    return words


def _counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    counted = {
        clean_text(name, limit=PHASE_LENGTH): whole_number(number) for name, number in list(value.items())[:MOST_PHASES]
    }
    return {name: number for name, number in counted.items() if number is not None}
