"""What was seen of one TpuTrainingJob and its children: plain values, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tpujob_contract.exit_codes import FATAL, ExitCode


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a trainer container that did not exit with 0."""

    pod: str
    slice_index: int
    host_index: int
    attempt: int
    """JobSet's restart attempt, from 0."""
    exit_code: int
    message: str
    """The termination message: the last lines, as the launcher or the kubelet wrote them."""
    finished_at: datetime
    """To the second: this is all the precision that Kubernetes has."""
    was_asked: bool = False
    """Whether it had been told to stop (deleted, evicted, preempted): a consequence or a disruption, not a cause."""

    @property
    def cause_order(self) -> tuple[object, ...]:
        """Sorts the likeliest first cause of an attempt's failure to the front.

        A code of 76 to 78 explains everything, whenever it was seen: such a process gives its reason. Then those that
        ended by themselves, before those that were asked to. Then the clock, which counts in seconds and differs
        between hosts, hence last; at last the position, so that the answer is always the same.
        """
        return (self.exit_code not in FATAL, self.is_consequence, self.finished_at, self.slice_index, self.host_index)

    @property
    def is_consequence(self) -> bool:
        """Whether something else made it end."""
        return self.was_asked or self.exit_code == ExitCode.STOPPED


@dataclass(frozen=True, kw_only=True)
class Host:
    """One pod of the job."""

    pod: str
    slice_index: int
    host_index: int
    attempt: int
    ready: bool
    succeeded: bool
    ip: str | None = None
    waiting_reason: str | None = None
    """Why the container does not start, e.g. ImagePullBackOff; None while it does or is only being created."""
    waiting_message: str = ""
    unschedulable: str | None = None
    """What the scheduler says, when it found no node."""


@dataclass(frozen=True, kw_only=True)
class JobSetState:
    """The JobSet of the job's name."""

    name: str
    uid: str
    owner_uid: str | None
    """The uid of the TpuTrainingJob that it was made for."""
    suspended: bool
    being_deleted: bool
    outcome: str | None
    """`Completed`, `Failed`, or None while it is not finished."""
    outcome_reason: str = ""
    outcome_message: str = ""
    outcome_at: datetime | None = None
    restarts: int = 0
    charged_restarts: int = 0
    """Restarts that were not free."""
    slices: int = 1
    hosts_per_slice: int = 1

    @property
    def hosts(self) -> int:
        """Number of pods that a complete attempt has."""
        return self.slices * self.hosts_per_slice


@dataclass(frozen=True, kw_only=True)
class Progress:
    """What process 0 says of itself."""

    phase: str
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    committed_step: int | None = None
    committed_at: datetime | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """All that a decision rests on."""

    manifest: Mapping[str, Any]
    """The TpuTrainingJob as read; its status is what has been recorded so far."""
    jobset: JobSetState | None = None
    hosts: tuple[Host, ...] = ()
    """Pods that exist and are not being deleted, of the newest attempt only."""
    ended: tuple[Ended, ...] = ()
    """Failures of containers, read from pods now or seen by the watch before."""
    creation_failure: str | None = None
    """Why pods cannot be created (quota, pod security, an admission webhook), in the API server's words."""
    jobset_refusal: str | None = None
    """Why the JobSet could not be created when that was last tried, in the API server's words."""
    progress: Progress | None = None
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def status(self) -> Mapping[str, Any]:
        """The recorded status, empty at first."""
        status: Mapping[str, Any] = self.manifest.get("status") or {}
        return status

    @property
    def uid(self) -> str:
        """Of the TpuTrainingJob."""
        uid: str = self.manifest["metadata"]["uid"]
        return uid

    @property
    def generation(self) -> int:
        """Counts changes of the spec."""
        generation: int = self.manifest["metadata"]["generation"]
        return generation

    @property
    def spec(self) -> Mapping[str, Any]:
        """As the person wrote it, valid or not."""
        spec: Mapping[str, Any] = self.manifest["spec"]
        return spec


def parse_time(text: str | None) -> datetime | None:
    """A Kubernetes time stamp."""
    return datetime.fromisoformat(text) if text else None


def format_time(time: datetime) -> str:
    """The way Kubernetes writes times: UTC, whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
