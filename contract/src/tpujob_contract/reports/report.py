"""The report of a process about itself: its fields, and where to find it during and after the process.

- Over HTTP: process 0 of a job, `PATH` on the report port.
- In the termination message of process 0, and of each independent worker: a line with `FINAL_PREFIX` and the fields
  `FINAL_FIELDS` as JSON.
- Beside the checkpoint: a file for each attempt in the folder `ATTEMPTS`, with `exit_code` added; null while the
  attempt runs, and if it was killed.

Times are Unix seconds. Readers treat absent fields as unknown, because the writer may have any version.
"""

import datetime
import json
import re
from typing import Any, Dict, Iterable, List, Literal, Mapping, Optional, Tuple, TypedDict, get_args

from tpujob_contract.reports import in_place

PATH = "/report"

Phase = Literal[
    "starting",
    "restoring",
    "compiling",
    "training",
    "saving",
    "evaluating",
    "sampling",
    "extracting",
    "finished",
    "stopping",
    "failed",
]
"""What a process is doing."""
PHASES: Tuple[str, ...] = get_args(Phase)


class Report(TypedDict, total=False):
    """The fields of a report, in the order in which they are written."""

    phase: Phase
    process_id: int
    processes: int
    attempt: Optional[str]
    """Incarnation, attempt and a nonce, "1.0-9f3a01bc"; with the number of restarts in place after the first:
    "1.0.2-9f3a01bc"."""
    step: int
    """Steps done."""
    steps: Optional[int]
    loss: Optional[float]
    loss_first: Optional[float]
    """Loss of the first step of this attempt."""
    gradient_norm: Optional[float]
    evaluation_loss: Optional[float]
    evaluation_step: Optional[int]
    tokens_per_second: Optional[float]
    mfu: Optional[float]
    """Model FLOPs utilization in which attention counts every pair of positions, as in PaLM."""
    attempt_steps: int
    """Steps done in this attempt."""
    lost_steps: int
    """Steps of this attempt that were undone."""
    goodput: Optional[Dict[str, float]]
    """Seconds by category, over all attempts."""
    goodput_fraction: Optional[float]
    committed_step: Optional[int]
    committed_time: Optional[float]
    checkpoint_failing_since: Optional[float]
    checkpoint_message: Optional[str]
    restored_from: Optional[int]
    checkpoint: Optional[str]
    """The checkpoint directory."""
    data_wait_seconds: float
    data_wait_fraction: Optional[float]
    data_slow_message: Optional[str]
    message: Optional[str]
    sample: Optional[str]
    units: Optional[int]
    """Units of an extraction in total."""
    units_done: Optional[int]
    """Units done by all workers."""
    units_here: Optional[int]
    """Units done by this worker."""
    rows_here: Optional[int]
    seconds: Dict[str, float]
    """By phase, in this attempt."""
    exit_code: Optional[int]
    """Only in the file of an attempt."""
    mfu_causal: Optional[float]
    """`mfu` in which attention counts only the pairs that a row of one document needs."""
    units_claimed: Optional[int]
    """Units claimed by all workers when they were last listed."""
    unit_failures: Optional[Dict[str, int]]
    """How often a unit was not finished, by cause."""
    rows_per_second: Optional[float]
    """Rate of all workers over the last minutes."""
    preflight_message: Optional[str]
    """Which hosts are slow or unusual, found before the first step."""
    straggler_message: Optional[str]
    """Which processes the others wait for, and what they are doing, while no step completes."""
    tokens_seen: Optional[int]
    """Positions of the batches of all steps done, padding included."""
    in_place_restarts: int
    """How often all programs have started again in their containers."""
    in_place_cause: Optional[str]
    """Why the attempt before the last such restart ended."""
    in_place: Optional[Dict[str, Any]]
    """How these attempts ended: `in_place.Account`."""
    values_not_finite: Optional[int]
    """Values in the units done by this worker."""


FIELDS: Tuple[str, ...] = tuple(Report.__annotations__)

FINAL_FIELDS = (
    "phase",
    "step",
    "steps",
    "loss",
    "committed_step",
    "committed_time",
    "checkpoint_failing_since",
    "checkpoint_message",
    "data_slow_message",
    "data_wait_fraction",
    "goodput",
    "goodput_fraction",
    "units",
    "units_done",
    "units_here",
    "rows_here",
    "values_not_finite",
    "unit_failures",
)
"""The fields in the termination message: it has 4096 bytes, which the text for people also uses."""

FINAL_PREFIX = "report: "
_FINAL_LINE = re.compile(rf"^{FINAL_PREFIX}(\{{.*\}})$", re.MULTILINE)

ATTEMPTS = "attempts"
"""Folder of the checkpoint directory."""


def final_line(report: Mapping[str, Any]) -> str:
    """The line of a termination message that holds the last report."""
    kept = {name: value for name, value in report.items() if name in FINAL_FIELDS}
    return FINAL_PREFIX + json.dumps(kept)


def split_final_report(termination_message: str) -> Tuple[str, Optional[str]]:
    """The text of a termination message for people, and its last report as JSON; None: there is none.

    A user's pod writes it: the JSON may be anything in braces.
    """
    message, _ = in_place.split(termination_message)
    found = _FINAL_LINE.search(message)
    return _FINAL_LINE.sub("", message).strip(), found[1] if found else None


def attempt_name(started: datetime.datetime, attempt_id: str) -> str:
    """The name of an attempt's file in a checkpoint directory; such names sort by time.

    Args:
        started: When the attempt started, with a time zone.
        attempt_id: As in `Report.attempt`; ends with a nonce.
    """
    utc = started.astimezone(datetime.timezone.utc)  # noqa: UP017 - 3.11 has datetime.UTC
    return f"{ATTEMPTS}/{utc:%Y%m%dT%H%M%SZ}-{attempt_id.rpartition('-')[2]}.json"


def stacks_name(attempt: str, process_id: int) -> str:
    """The name of a process's file for the stacks of its threads, beside the file of its attempt."""
    return f"{attempt[: -len('.json')]}.stacks-{process_id}.txt"


def newest_first(names: Iterable[str]) -> List[str]:
    """The files of attempts among these names in the folder, newest first."""
    return sorted((name for name in names if name.endswith(".json")), reverse=True)
