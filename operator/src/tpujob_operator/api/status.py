"""`status` of a TpuTrainingJob: what the operator saw, in the words of `kubectl get`. Written by the operator only."""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field, field_validator
from pydantic.alias_generators import to_camel


class Phase(StrEnum):
    """Where a job stands, in one word."""

    INVALID = "Invalid"
    QUEUED = "Queued"
    WAITING_FOR_CAPACITY = "WaitingForCapacity"
    STARTING = "Starting"
    RUNNING = "Running"
    STALLED = "Stalled"
    RESTARTING = "Restarting"
    STOPPING = "Stopping"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing but an explicit retry revives the job."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


EDITABLE_PHASES = (Phase.INVALID, Phase.SUSPENDED, Phase.FAILED)
"""Phases in which every field of the spec may change; the change makes a new incarnation."""


class _Part(BaseModel):
    # Tolerant: an older operator may read what a newer one wrote.
    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )


class Condition(_Part):
    """One fact about the job, in the usual form."""

    type: Annotated[str, Field(max_length=64)]
    """What the fact is about."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    reason: Annotated[str, Field(max_length=64)]
    """Why, in one CamelCase word."""
    message: Annotated[str, Field(max_length=4096)] = ""
    """Why, in plain words, and what to do."""
    observed_generation: int | None = None
    """Generation of the spec that this refers to."""
    last_transition_time: datetime
    """When the status last changed."""


class Failure(_Part):
    """The first failure of the last attempt that failed."""

    host: Annotated[str, Field(max_length=253)] | None = None
    """Slice and host, as in slice 0 host 3."""
    slice_index: int | None = None
    """The slice, counted from 0."""
    host_index: int | None = None
    """The host within its slice, counted from 0."""
    pod: Annotated[str, Field(max_length=253)] | None = None
    """Name of the pod."""
    exit_code: int | None = None
    """Exit code of its process."""
    message: Annotated[str, Field(max_length=4096)] | None = None
    """Its last lines."""
    attempt: int | None = None
    """Which attempt that was, counted from 0."""
    time: datetime | None = None
    """When its process ended."""


class Disruption(_Part):
    """What was taken away or asked to stop first, in the last attempt in which anything was."""

    attempt: int
    """Which attempt that was, counted from 0."""
    pod: Annotated[str, Field(max_length=253)] | None = None
    """Name of the pod."""
    slice_index: int = 0
    """Its slice, counted from 0."""
    host_index: int = 0
    """Its host within the slice, counted from 0."""
    exit_code: int | None = None
    """Exit code of its process."""
    asked_at: datetime | None = None
    """When it was asked to stop."""
    time: datetime | None = None
    """When its process ended."""
    marked: bool = False
    """Whether Kubernetes says that it was evicted, preempted or shut down with its node."""
    node: Annotated[str, Field(max_length=253)] | None = None
    """Name of the node that is gone or not well, or on which the pod ran."""
    trouble: Annotated[str, Field(max_length=253)] | None = None
    """What is wrong with the node; absent when that is not known."""


class Status(_Part):
    """How the job is doing. Written by the operator; what somebody else writes here is overwritten."""

    phase: Phase | None = None
    """Where the job stands, in one word."""
    message: Annotated[str, Field(max_length=4096)] | None = None
    """The phase in plain words: what is waited for, or what went wrong."""
    observed_generation: int | None = None
    """Generation of the spec that this status refers to."""
    conditions: Annotated[list[Condition], Field(max_length=32)] | None = None
    """Facts in the usual form, one per type."""
    job_set: Annotated[str, Field(max_length=253)] | None = None
    """Name of the JobSet that runs the job."""
    job_set_uid: Annotated[str, Field(max_length=64)] | None = None
    """Its uid. Only the JobSet recorded here ever runs, so that there is exactly one."""
    incarnation: int | None = None
    """Which JobSet of this job that is, counted from 1; an edited spec makes a new one."""
    spec_hash: Annotated[str, Field(max_length=64)] | None = None
    """What it was made from: a hash of the fields that do not change in place."""
    retry: int | None = None
    """The value of spec.retry that this status has taken into account."""
    hosts: int | None = None
    """Hosts that the job needs in all."""
    hosts_ready: int | None = None
    """Hosts whose process runs or has finished."""
    restarts: int | None = None
    """How often the job has been restarted, for whatever cause."""
    crashes: int | None = None
    """Crashes since the committed step last advanced; spec.restarts.crashes limits them."""
    disruptions: int | None = None
    """Restarts put down to something that was taken away (preempted, evicted, deleted, a lost node): free."""
    unexplained_restarts: int | None = None
    """Restarts whose cause nobody saw: not charged as crashes, and limited only while there is no progress."""
    suspension_restarts: int | None = None
    """Restarts that the JobSet counted because the job was suspended: no restarts of the job."""
    booked_restarts: int | None = None
    """Restarts of the JobSet whose cause has been judged."""
    restarts_without_progress: int | None = None
    """Restarts in a row, whatever their cause, since the committed step last advanced or an attempt lasted an hour."""
    unexplained_without_progress: int | None = None
    """Of these, the ones whose cause nobody saw."""
    restarted_at_step: int | None = None
    """Committed step at the last restart."""
    restart_time: datetime | None = None
    """When the last restart was judged."""
    next_restart_time: datetime | None = None
    """When the job goes on: restarts that bring no progress are made at growing intervals."""
    crashed_at_step: int | None = None
    """Committed step at the last of them."""
    step: int | None = None
    """Training step, as of the last report."""
    step_time: datetime | None = None
    """When the step last changed, or the hosts last came up."""
    steps: int | None = None
    """Steps of the whole run."""
    loss: float | None = None
    """Loss of that step; absent when it is not a finite number."""
    tokens_per_second: float | None = None
    """Tokens per second of the whole job."""
    last_checkpoint_step: int | None = None
    """Step of the last committed checkpoint."""
    last_checkpoint_time: datetime | None = None
    """When it was committed."""
    data_wait_fraction: float | None = None
    """Part of the time that steps wait for data, 0 to 1."""
    goodput: Annotated[dict[str, int], Field(max_length=32)] | None = None
    """Seconds spent so far in each phase of time, over all attempts."""
    start_time: datetime | None = None
    """When all hosts first ran."""
    completion_time: datetime | None = None
    """When the job ended."""
    failure: Failure | None = None
    """The first failure of the last attempt that failed."""
    disruption: Disruption | None = None
    """What was taken away in the last attempt; kept here, for pods and operators may be gone before it is judged."""
    accelerator_note: Annotated[str, Field(max_length=1024)] | None = None
    """What the name of the accelerator amounts to, where it can be misread."""

    @field_validator("loss", "tokens_per_second")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        # JSON has no NaN, and the API server would refuse the whole status; six digits are what a reader wants.
        return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ready(self) -> str | None:
        """Hosts that have arrived, of all, as in 3/4."""
        return None if self.hosts is None else f"{self.hosts_ready or 0}/{self.hosts}"
