"""`status` of a TpuTrainingJob: what the operator observed. Only the operator writes it."""

from __future__ import annotations

from enum import Flag, StrEnum, auto
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from tpujob_resource.models.times import EARLIEST, LATEST, format_time


class Traits(Flag):
    """Properties of a job in a phase."""

    NONE = 0
    TERMINAL = auto()
    """Only an explicit retry or edit ends the phase."""
    EDITABLE = auto()
    """Every field of the spec may change; the change starts a new incarnation."""
    RUNNING = auto()
    """All hosts run."""
    HOLDS_MACHINES = auto()
    """Pods have machines, or are about to get them."""
    NO_PODS = auto()
    """No pod runs, and how earlier pods ended does not matter for the next start."""
    WARNING = auto()
    """The job needs attention: its Events are warnings."""
    WAITING = auto()
    """The job waits; dashboards count such jobs."""


class Phase(StrEnum):
    """The state of a job in one word. Each row: the word, its meaning, when the phase ends, its traits.

    The documentation's table of phases is generated from these rows.
    """

    meaning: str
    continues: str
    """When the phase ends."""
    traits: Traits

    def __new__(cls, word: str, meaning: str, continues: str, traits: Traits) -> Self:
        """Makes the member of a row."""
        phase = str.__new__(cls, word)
        phase._value_ = word
        phase.meaning = meaning
        phase.continues = continues
        phase.traits = traits
        return phase

    INVALID = (
        "Invalid",
        "the spec cannot work; the message names each field",
        "when it is edited",
        Traits.EDITABLE | Traits.NO_PODS | Traits.WARNING,
    )
    QUEUED = (
        "Queued",
        "its JobSet is being created, or waits for a Kueue queue",
        "by itself",
        Traits.NO_PODS | Traits.WAITING,
    )
    WAITING_FOR_CAPACITY = (
        "WaitingForCapacity",
        "a pod has no node",
        "by itself, unless the condition Blocked is true",
        Traits.WAITING,
    )
    STARTING = (
        "Starting",
        "not every host is ready yet",
        "by itself",
        Traits.HOLDS_MACHINES,
    )
    RUNNING = (
        "Running",
        "all hosts are ready",
        "",
        Traits.RUNNING | Traits.HOLDS_MACHINES,
    )
    STALLED = (
        "Stalled",
        "all hosts are ready, and no step is made (an alarm; the trainer's watchdog ends what hangs)",
        "with the next step",
        Traits.RUNNING | Traits.HOLDS_MACHINES | Traits.WARNING | Traits.WAITING,
    )
    RESTARTING = (
        "Restarting",
        "a host has failed; all start again from the last checkpoint. The message names the cause",
        "by itself",
        Traits.HOLDS_MACHINES | Traits.WARNING,
    )
    STOPPING = (
        "Stopping",
        "pods use their grace period to save and end",
        "when they are gone",
        Traits.HOLDS_MACHINES,
    )
    SUSPENDED = (
        "Suspended",
        "`spec.suspend` is set; no pod is left, and with a queue no JobSet",
        "with `suspend: false`",
        Traits.EDITABLE | Traits.NO_PODS,
    )
    SUCCEEDED = (
        "Succeeded",
        "every host exited with 0",
        "when `spec.retry` is raised",
        Traits.TERMINAL,
    )
    FAILED = (
        "Failed",
        "see `status.failure` and the message",
        "when `spec.retry` is raised or the spec is edited",
        Traits.TERMINAL | Traits.EDITABLE | Traits.WARNING,
    )


def phases_with(traits: Traits) -> tuple[Phase, ...]:
    """The phases that have one of these traits, in the order of the table."""
    return tuple(phase for phase in Phase if phase.traits & traits)


TERMINAL = phases_with(Traits.TERMINAL)
HOLDS_MACHINES = phases_with(Traits.HOLDS_MACHINES)
WAITS_FOR_MACHINES = tuple(phase for phase in phases_with(Traits.WAITING) if phase not in HOLDS_MACHINES)
RUNNING_PHASES = phases_with(Traits.RUNNING)
EDITABLE_PHASES = phases_with(Traits.EDITABLE)


Time = Annotated[
    AwareDatetime,
    Field(ge=EARLIEST, le=LATEST),
    PlainSerializer(format_time, return_type=str, when_used="json-unless-none"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A Kubernetes timestamp: whole seconds of UTC."""


SUSPECT_FAILURES = 2
"""Crashes on one node after which a job avoids it: a single crash may have another cause."""


class _Part(BaseModel):
    # An older operator must be able to read a newer status, and to keep its unknown fields.
    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="allow",
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
    last_transition_time: Time
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
    node: Annotated[str, Field(max_length=253)] | None = None
    """Name of the node it ran on."""
    exit_code: int | None = None
    """Exit code of its process."""
    message: Annotated[str, Field(max_length=4096)] | None = None
    """Its last lines."""
    attempt: int | None = None
    """Which attempt that was, counted from 0."""
    time: Time | None = None
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
    asked_at: Time | None = None
    """When it was asked to stop."""
    time: Time | None = None
    """When its process ended."""
    marked: bool = False
    """Whether Kubernetes says that it was evicted, preempted or shut down with its node."""
    node: Annotated[str, Field(max_length=253)] | None = None
    """Name of the node that is gone or not well, or on which the pod ran."""
    trouble: Annotated[str, Field(max_length=253)] | None = None
    """What is wrong with the node; absent when that is not known."""


class Unschedulable(_Part):
    """Hosts of an attempt that had no machine when it was last looked at."""

    attempt: int
    """Which attempt that is, counted from 0."""
    hosts: Annotated[str, Field(max_length=600)]
    """Slice, host and pod of the first of them, and how many more there are."""
    since: Time
    """When that was first seen."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """Why the first of them has no node, in the scheduler's words."""


class NodeFailures(_Part):
    """How often the job crashed on a node, and whether its pods keep off it."""

    node: Annotated[str, Field(max_length=253)]
    """Name of the node."""
    failures: int
    """Attempts whose first failure was there, and nothing outside the job explains it."""
    exit_code: int | None = None
    """Exit code of the last of them."""
    time: Time | None = None
    """When the last of them was judged."""
    avoided_label: Annotated[str, Field(max_length=317)] | None = None
    """Node label by which pods keep off: the node pool's where a slice takes whole pools, else the node's own."""
    avoided_value: Annotated[str, Field(max_length=63)] | None = None
    """Value of that label which machines must not have."""
    lifted: bool = False
    """Whether it is allowed again, because no other machine was found."""

    @property
    def is_suspect(self) -> bool:
        """Whether the node should be avoided, but is not yet."""
        return self.failures >= SUSPECT_FAILURES and self.avoided_label is None and not self.lifted


class InPlacePod(_Part):
    """How many attempts in the same pods have been counted, of one set of pods."""

    pod: Annotated[str, Field(max_length=253)] = ""
    """Name of the pod of process 0; empty while it is not known."""
    attempt: int
    """Restart attempt of the JobSet, counted from 0."""
    crashes: Annotated[int, Field(ge=0)] = 0
    """Ended by a crash."""
    disruptions: Annotated[int, Field(ge=0)] = 0
    """Ended by something that was taken away."""
    unexplained: Annotated[int, Field(ge=0)] = 0
    """Ended with a cause that nobody knows, as with exit code 75 that nobody asked for."""
    suspensions: Annotated[int, Field(ge=0)] = 0
    """Ended since the job was suspended: no restarts."""


class InPlaceAttempt(_Part):
    """The end of an attempt after which all programs started again in the same pods."""

    attempt: int
    """Restart attempt of the JobSet, counted from 0."""
    pod: Annotated[str, Field(max_length=253)] = ""
    """Name of the pod of process 0; empty while it is not known."""
    number: int
    """Which restart in these pods followed, counted from 1."""
    cause: Annotated[str, Field(max_length=40)]
    """Crash, Disruption or Unexplained."""
    host: Annotated[str, Field(max_length=253)] | None = None
    """The first to fail: slice and host, as in slice 0 host 3."""
    exit_code: int | None = None
    """Exit code of its process."""
    time: Time | None = None
    """When it failed."""
    step: int | None = None
    """Step that the job had reached."""
    next_step: int | None = None
    """Step from which the next attempt went on."""
    seconds: int | None = None
    """From the failure to the first step after it."""
    message: Annotated[str, Field(max_length=1024)] | None = None
    """The last lines of the process that failed."""


class Units(_Part):
    """How far workers that share a list of units are, all of them together."""

    total: int
    """Units of the list."""
    done: int
    """Units that are finished, and that no worker does again."""
    claimed: int | None = None
    """Units that workers have claimed."""
    left: int | None = None
    """Units that nobody has claimed."""
    rows_per_second: float | None = None
    """Rows of the corpus that all workers finish in a second, over the last minutes."""
    failures: Annotated[dict[str, int], Field(max_length=32)] | None = None
    """How often a unit was not finished, by cause; another worker does it again."""


class Status(_Part):
    """How the job is doing. Written by the operator; what somebody else writes here is overwritten."""

    phase: Phase | None = None
    """Where the job stands, in one word."""
    phase_time: Time | None = None
    """When the job came into this phase."""
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
    slices: int | None = None
    """Slices that the job runs with; written where spec.minSlices allows fewer than spec.slices."""
    slices_time: Time | None = None
    """When the number of slices was last changed."""
    slices_missing_time: Time | None = None
    """Since when machines for a slice, or a place in the queue, have been missing; absent while all hosts run."""
    resizes: int | None = None
    """How often the number of slices was changed; none of these is a restart."""
    resized_at_step: int | None = None
    """Committed step at the last of these changes."""
    growths_without_progress: int | None = None
    """Growths in a row without a newer checkpoint after them; each doubles the time to the next."""
    next_growth_time: Time | None = None
    """When the job may grow at the earliest."""
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
    capacity_restarts: int | None = None
    """Restarts because machines for some hosts did not come while the others waited (spec.startupSeconds): free."""
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
    restart_time: Time | None = None
    """When the last restart was judged."""
    next_restart_time: Time | None = None
    """When the job goes on: restarts that bring no progress are made at growing intervals."""
    crashed_at_step: int | None = None
    """Committed step at the last of them."""
    step: int | None = None
    """Training step, as of the last report; between two attempts, that of the last checkpoint."""
    step_time: Time | None = None
    """When the step last changed, or the hosts last came up."""
    steps: int | None = None
    """Steps of the whole run."""
    loss: float | None = None
    """Loss of that step; absent when it is not a finite number."""
    tokens_per_second: float | None = None
    """Tokens per second of the whole job."""
    last_checkpoint_step: int | None = None
    """Step of the last committed checkpoint."""
    last_checkpoint_time: Time | None = None
    """When it was committed."""
    data_wait_fraction: float | None = None
    """Part of the time that steps wait for data, 0 to 1."""
    goodput: Annotated[dict[str, int], Field(max_length=32)] | None = None
    """Seconds spent so far in each phase of time, over all attempts."""
    straggler_message: Annotated[str, Field(max_length=1024)] | None = None
    """Which processes the others wait for, and where these are; absent while steps are made."""
    preflight_message: Annotated[str, Field(max_length=1024)] | None = None
    """Which hosts the trainer found to be slow or odd before the first step of this attempt."""
    in_place_restarts: Annotated[int, Field(ge=0)] | None = None
    """How often all programs have started again in the pods that run; see spec.inPlaceRestarts."""
    in_place_cause: Annotated[str, Field(max_length=1024)] | None = None
    """Which process ended the last of these attempts, and why."""
    in_place_total: Annotated[int, Field(ge=0)] | None = None
    """Of restarts, those in the same pods, over all pods."""
    in_place_pods: Annotated[list[InPlacePod], Field(max_length=4)] | None = None
    """What has been counted of them, for the last sets of pods."""
    in_place_attempts: Annotated[list[InPlaceAttempt], Field(max_length=8)] | None = None
    """How the last of these attempts ended."""
    units: Units | None = None
    """Progress of workers that share units, as with task: extract."""
    start_time: Time | None = None
    """When all hosts first ran."""
    completion_time: Time | None = None
    """When the job ended."""
    failure: Failure | None = None
    """The first failure of the last attempt that failed."""
    asked_again: Failure | None = None
    """The process that ended the last such attempt with 75, unasked; kept here, for it may be judged by a successor."""
    disruption: Disruption | None = None
    """What was taken away in the last attempt; kept here, for pods and operators may be gone before it is judged."""
    unschedulable: Unschedulable | None = None
    """Hosts without a machine; kept here, for their pods are gone before the attempt is judged."""
    node_failures: Annotated[list[NodeFailures], Field(max_length=16)] | None = None
    """Nodes on which the job crashed; on the second crash its pods avoid the node. Cleared by an edit and by retry."""
    earlier_restarts: int | None = None
    """Of `restarts`, those of earlier incarnations that were ended to avoid a node or to change the slices; without
    those in the same pods."""
    code_sha256: Annotated[str, Field(max_length=64)] | None = None
    """Digest of the archive of the code that the JobSet was made with; absent when the job has no such code."""
    code_commit: Annotated[str, Field(max_length=64)] | None = None
    """Commit of the repository of the code that the JobSet was made with; absent when the job has no such code."""
    accelerator_note: Annotated[str, Field(max_length=1024)] | None = None
    """What the name of the accelerator amounts to, where it can be misread."""
    warnings: Annotated[list[Annotated[str, Field(max_length=1024)]], Field(max_length=32)] | None = None
    """What is allowed in the spec and probably not meant, a sentence each."""

    ready: str | None = None
    """Hosts that have arrived, of all, as in 3/4."""

    @property
    def current_incarnation(self) -> int:
        """The incarnation of the job that this status is about; 1 before there is any."""
        return self.incarnation or 1

    def as_stored(self) -> dict[str, Any]:
        """The status as the API server stores it: JSON with camelCase names, without absent fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
