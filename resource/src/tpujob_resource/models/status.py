"""`status` of a TpuTrainingJob: what the operator observed. Only the operator writes it."""

from collections.abc import Mapping
from functools import reduce
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

from tpujob_resource.models.phases import Phase
from tpujob_resource.models.times import EARLIEST, LATEST, format_time

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
    """The first pod or node that was lost or asked to stop in the last attempt that had a disruption."""

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
    """Whether the pod has the condition DisruptionTarget: evicted, preempted or shut down with its node."""
    node: Annotated[str, Field(max_length=253)] | None = None
    """Name of the lost node, or of the node on which the pod ran."""
    trouble: Annotated[str, Field(max_length=253)] | None = None
    """Why the node is lost; absent for a pod."""


class Unschedulable(_Part):
    """Hosts of an attempt that have no machine."""

    attempt: int
    """Which attempt that is, counted from 0."""
    hosts: Annotated[str, Field(max_length=600)]
    """The first of them (slice, host and pod) and the number of others."""
    since: Time
    """When that was first seen."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """Why the first of them has no node, in the scheduler's words."""


class NodeFailures(_Part):
    """Crashes of the job on one node, and whether its pods avoid the node."""

    node: Annotated[str, Field(max_length=253)]
    """Name of the node."""
    failures: int
    """Attempts that crashed on this node first."""
    exit_code: int | None = None
    """Exit code of the last of them."""
    time: Time | None = None
    """When the cause of the last one was decided."""
    avoided_label: Annotated[str, Field(max_length=317)] | None = None
    """Node label that pods avoid: of the node pool if a slice takes whole pools, otherwise of the node."""
    avoided_value: Annotated[str, Field(max_length=63)] | None = None
    """Value of that label that pods avoid."""
    lifted: bool = False
    """Whether the node may be used again because no other machine was found."""

    @property
    def is_suspect(self) -> bool:
        """Whether the node should be avoided, but is not yet."""
        return self.failures >= SUSPECT_FAILURES and self.avoided_label is None and not self.lifted


class InPlaceCounts(_Part):
    """Restarts in the newest set of pods, by the causes that their launchers know."""

    attempt: int
    """Restart attempt of the JobSet, counted from 0."""
    pod: Annotated[str, Field(max_length=253)] = ""
    """Name of a pod of process 0, by which launchers know the set."""
    created_at: Time | None = None
    """When the newest pod that reported some of them was created."""
    counts: Annotated[dict[str, int], Field(max_length=3)]
    """Restarts by cause: Crash, Disruption (a pod was lost) or Unexplained."""


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


class RestartCounts(_Part):
    """How often the job has restarted, by cause."""

    total: int | None = None
    """All restarts of the job. The cause of the last one may still be unknown."""
    in_place: Annotated[int, Field(ge=0)] | None = None
    """Restarts in the same pods, included in total. See spec.inPlaceRestarts."""
    crashes: int | None = None
    """Restarts because a process failed by itself."""
    disruptions: int | None = None
    """Restarts because a pod or node was preempted, evicted, deleted or lost. They are free."""
    unexplained: int | None = None
    """Restarts whose cause is unknown. They are free, but limited while the job makes no progress."""
    capacity: int | None = None
    """Restarts because some hosts got no machine within spec.startupSeconds. They are free."""
    free: int | None = None
    """Restarts that do not count against spec.restarts.crashes: disruptions, unexplained and capacity."""
    charged: int | None = None
    """Crashes since the last new checkpoint, without those in the same pods; spec.restarts.crashes is the limit."""
    next_time: Time | None = None
    """When the next attempt starts; set while a restart is delayed because earlier ones made no progress."""
    in_these_pods: Annotated[int, Field(ge=0)] | None = None
    """Restarts in the pods that run now."""
    in_place_cause: Annotated[str, Field(max_length=1024)] | None = None
    """Cause of the last restart in the pods that run now."""
    in_place_attempts: Annotated[list[InPlaceAttempt], Field(max_length=8)] | None = None
    """The last attempts that ended with a restart in the same pods. Of several between two reports, only the last."""


class SliceCounts(_Part):
    """The number of slices of a job with spec.minSlices."""

    current: int | None = None
    """Slices that the job runs with."""
    changed_time: Time | None = None
    """When the number of slices last changed."""
    missing_time: Time | None = None
    """Since when a slice has had no machines or no quota; absent while all hosts run."""
    resizes: int | None = None
    """How often the number of slices has changed. These changes are not restarts."""
    next_growth_time: Time | None = None
    """Earliest time at which slices are added."""


class TrainingProgress(_Part):
    """Figures from the last report of the training program."""

    loss: float | None = None
    """Loss at status.step; absent if it is not a finite number."""
    tokens_per_second: float | None = None
    """Tokens per second of the whole job."""
    step_time: Time | None = None
    """When the step last changed, or when all hosts last became ready."""
    data_wait_fraction: float | None = None
    """Fraction of the time that steps wait for input data, from 0 to 1."""
    goodput: Annotated[dict[str, int], Field(max_length=32)] | None = None
    """Seconds spent in each kind of work, such as training or restoring, over all attempts."""
    straggler_message: Annotated[str, Field(max_length=1024)] | None = None
    """Slow processes that the others wait for, and their nodes."""
    preflight_message: Annotated[str, Field(max_length=1024)] | None = None
    """Hosts that were slow or unusual in the checks before the first step of this attempt."""
    units: Units | None = None
    """Progress of workers that share units of work, as with task: extract."""


class Internal(_Part):
    """Records of the operator. Not an API: fields may change or disappear in any release."""

    job_set_uid: Annotated[str, Field(max_length=64)] | None = None
    """UID of the only JobSet that may run."""
    spec_hash: Annotated[str, Field(max_length=64)] | None = None
    """Hash of the spec fields that the JobSet was made from."""
    retry: int | None = None
    """Last spec.retry that was acted on."""
    booked_restarts: int | None = None
    """Restarts of the JobSet whose cause is decided."""
    earlier_restarts: int | None = None
    """Restarts of earlier JobSets of the same run, without those in the same pods."""
    suspension_restarts: int | None = None
    """Restarts that the JobSet counted because the job was suspended. They are not restarts of the job."""
    restarts_without_progress: int | None = None
    """Restarts since the last new checkpoint, or since an attempt that lasted an hour."""
    unexplained_without_progress: int | None = None
    """The unexplained ones of restartsWithoutProgress."""
    restarted_at_step: int | None = None
    """Step of the last checkpoint at the last restart."""
    restart_time: Time | None = None
    """When the cause of the last restart was decided."""
    crashed_at_step: int | None = None
    """Step of the last checkpoint at the last crash."""
    resized_at_step: int | None = None
    """Step of the last checkpoint at the last change of the number of slices."""
    growths_without_progress: int | None = None
    """Times in a row that slices were added and no new checkpoint followed. Each doubles the next delay."""
    counted_in_place: InPlaceCounts | None = None
    """Restarts in the newest set of pods that are counted already."""
    asked_again: Failure | None = None
    """First process that exited with 75 without a request to stop, in the last such attempt."""
    disruption: Disruption | None = None
    """First disruption of the last attempt that had one."""
    unschedulable: Unschedulable | None = None
    """Hosts without a machine, in the last attempt that had some."""


class Status(_Part):
    """State of the job, written by the operator."""

    phase: Phase | None = None
    """State of the job in one word."""
    phase_time: Time | None = None
    """When this phase began."""
    message: Annotated[str, Field(max_length=4096)] | None = None
    """What the job waits for, or what went wrong."""
    step: int | None = None
    """Training step in the last report. Between attempts: step of the last checkpoint."""
    steps: int | None = None
    """Steps of the whole run."""
    ready: str | None = None
    """Ready hosts of all hosts, such as 3/4."""
    hosts: int | None = None
    """Hosts of the job."""
    hosts_ready: int | None = None
    """Hosts whose process is ready or has finished."""
    last_checkpoint_step: int | None = None
    """Step of the last committed checkpoint."""
    last_checkpoint_time: Time | None = None
    """When it was committed."""
    start_time: Time | None = None
    """When all hosts first ran."""
    completion_time: Time | None = None
    """When the job ended."""
    conditions: Annotated[list[Condition], Field(max_length=32)] | None = None
    """Conditions, one per type."""
    observed_generation: int | None = None
    """Generation of the spec that this status refers to."""
    restarts: RestartCounts = RestartCounts()
    """How often the job has restarted, by cause."""
    slices: SliceCounts = SliceCounts()
    """Number of slices of a job with spec.minSlices."""
    progress: TrainingProgress = TrainingProgress()
    """Figures from the last report of the training program."""
    failure: Failure | None = None
    """The first failure of the last attempt that failed."""
    job_set: Annotated[str, Field(max_length=253)] | None = None
    """Name of the JobSet that runs the job."""
    incarnation: int | None = None
    """Number of the current JobSet, from 1. An edited spec, for example, makes a new JobSet."""
    node_failures: Annotated[list[NodeFailures], Field(max_length=16)] | None = None
    """Nodes on which the job crashed. After two crashes its pods avoid the node. Cleared by an edit and by retry."""
    code_sha256: Annotated[str, Field(max_length=64)] | None = None
    """SHA-256 of the code archive that the pods use."""
    code_commit: Annotated[str, Field(max_length=64)] | None = None
    """Commit of the code repository that the pods use."""
    accelerator_note: Annotated[str, Field(max_length=1024)] | None = None
    """Chips and hosts of the accelerator, if its name can be misread."""
    warnings: Annotated[list[Annotated[str, Field(max_length=1024)]], Field(max_length=32)] | None = None
    """Parts of the spec that are valid, but probably not intended."""
    internal: Internal = Internal()
    """Records of the operator. Not an API: fields may change or disappear in any release."""

    @property
    def current_incarnation(self) -> int:
        """The incarnation of the job that this status is about; 1 before there is any."""
        return self.incarnation or 1

    def as_stored(self) -> dict[str, Any]:
        """The status as the API server stores it: JSON with camelCase names, without absent fields and empty groups."""
        fields = self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
        return {name: value for name, value in fields.items() if value != {} or name not in GROUPS}

    def get(self, path: str) -> Any:
        """The value of a field by its path, such as `step` or `restarts.total`."""
        return reduce(getattr, path.split("."), self)

    def updated(self, fields: Mapping[str, Any]) -> Self:
        """A copy with these fields, by their paths, such as `step` or `restarts.total`; None removes one."""
        own = {path: value for path, value in fields.items() if "." not in path}
        for group in GROUPS:
            prefix = f"{group}."
            inner = {path.removeprefix(prefix): value for path, value in fields.items() if path.startswith(prefix)}
            if inner:
                own[group] = getattr(self, group).model_copy(update=inner)
        return self.model_copy(update=own)


GROUPS = tuple(name for name, field in Status.model_fields.items() if isinstance(field.default, _Part))
"""The fields of a status that are groups of fields."""
