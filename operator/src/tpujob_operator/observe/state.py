"""What was seen of one TpuTrainingJob and its children: plain values, read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from tpujob_contract.exit_codes import FATAL, ExitCode
from tpujob_contract.reports import termination_message
from tpujob_operator.observe.in_place import PodAccount
from tpujob_operator.observe.report import Progress
from tpujob_resource.models.stored import StoredJob
from tpujob_resource.models.times import format_time, parse_time
from tpujob_resource.rules.load import TpuTrainingJob, load_job, without_status

__all__ = [
    "Ended",
    "Host",
    "JobSetState",
    "Leaving",
    "LostNode",
    "Notice",
    "Observed",
    "PolicyState",
    "Progress",
    "QueuePosition",
    "QueueState",
    "WorkerJob",
    "format_time",
    "parse_time",
]


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
    """Whether it had been asked to stop (deleted, evicted, preempted): a consequence or a disruption, not a cause."""
    asked_at: datetime | None = None
    """When that was, to the second; also set when it had ended before."""
    is_disrupted: bool = False
    """Whether Kubernetes says so itself (evicted, preempted, node shut down); never so of a crash's peers."""
    node: str | None = None
    """Name of the node it ran on."""
    created_at: datetime | None = None
    """When the pod was made."""
    placed_at: datetime | None = None
    """When it was put on its node, which an autoscaler may have made for it."""
    version: int | None = None
    """Resource version of the pod when it was first seen to have ended; grows with every write in the cluster."""
    asked_version: int | None = None
    """The same for when it was first seen to be asked to stop; None if that was after its end."""

    @property
    def cause_order(self) -> tuple[object, ...]:
        """Sorts the likeliest first cause of an attempt's failure to the front.

        A code of 76 to 78 explains everything, whenever it was seen: such a process gives its reason. Then those that
        ended by themselves, before those that were asked to, or that name another process: they may end before it, as
        its exit handlers take their time. Then the clock, which counts in seconds and differs
        between hosts. Within a second a code of its own counts more than 1, with which the trainer's processes follow
        another one's end; then the moment at which a program says that it failed; at last the position, so that the
        answer is always the same.
        """
        failed_at = termination_message.failed_at(self.message)
        said = (failed_at is None, failed_at or 0.0)
        place = (self.slice_index, self.host_index)
        names_another = termination_message.named_in(self.message) is not None
        first = (self.exit_code not in FATAL, self.is_consequence, names_another)
        return (*first, self.finished_at, self.exit_code == 1, *said, *place)

    @property
    def is_consequence(self) -> bool:
        """Whether it says, or Kubernetes does, that it was asked to end."""
        return self.was_asked or self.exit_code == ExitCode.STOPPED


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaving:
    """A pod that was asked to stop and whose container has not ended yet."""

    pod: str
    slice_index: int
    host_index: int
    attempt: int
    asked_at: datetime
    asked_version: int | None
    """Resource version of the pod when it was first seen to be asked."""
    is_disrupted: bool
    """Whether Kubernetes says so itself; see `Ended`."""
    node: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """One pod of the job."""

    pod: str
    slice_index: int
    host_index: int
    attempt: int
    ready: bool
    succeeded: bool
    ip: str | None = None
    finished_at: datetime | None = None
    """When it exited with 0."""
    waiting_reason: str | None = None
    """Why the container does not start, e.g. ImagePullBackOff; None while it does or is only being created."""
    waiting_message: str = ""
    unschedulable: str | None = None
    """What the scheduler says, when it found no node."""


@dataclass(frozen=True, kw_only=True, slots=True)
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
    restarts_version: int | None = None
    """Resource version when this number was first seen; 0 if it never was another one while this process watched."""
    slices: int = 1
    hosts_per_slice: int = 1
    incarnation: int = 1
    """Which JobSet of its job this is."""
    spec_hash: str | None = None
    """What it was made from, see `jobset.spec_hash`."""
    host_network: bool = False
    """Whether its pods are on the network of their nodes, where a NetworkPolicy does not apply."""

    @property
    def hosts(self) -> int:
        """Number of pods that a complete attempt has."""
        return self.slices * self.hosts_per_slice


@dataclass(frozen=True, kw_only=True)
class WorkerJob:
    """The Job of independent workers, read while its size is not that of the JobSet's template."""

    name: str
    workers: int
    """Pods that it is to have."""
    resource_version: str
    """As it was read: what changes it must still find this one."""


@dataclass(frozen=True, kw_only=True)
class LostNode:
    """A node that had a pod of an attempt that failed, and is gone or not well."""

    attempt: int
    name: str
    trouble: str
    """What is wrong, to follow the name: `is not ready`."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """An Event about a pod that waits for a node."""

    reason: str
    message: str
    last_seen: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePosition:
    """Where a Workload stands among those that wait, in the order in which Kueue tries them."""

    ahead: int
    """Workloads of its ClusterQueue that are tried before it."""
    ahead_in_queue: int
    """Those of them that are in its own LocalQueue."""


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """What Kueue says of a job that it has not admitted."""

    is_installed: bool = True
    """Whether the cluster knows Kueue's Workloads at all."""
    since: datetime | None = None
    """When the wait started, or started again."""
    message: str = ""
    """Kueue's words on what is waited for."""
    position: QueuePosition | None = None
    """While it waits for quota, where Kueue tells it."""
    has_quota: bool = False
    """Whether only admission checks are left."""
    cannot_be_admitted: bool = False
    """Whether waiting alone does not help: a queue that does not exist or takes nothing, a Workload that is off."""
    is_deactivated: bool = False
    """Whether the Workload's `spec.active` is false."""
    eviction: str = ""
    """Kueue's words on why it took the job's place back."""
    is_preempted: bool = False
    """Whether it did so for another job."""
    preempted_by: str | None = None
    """That job's kind, namespace and name, where they are known."""


@dataclass(frozen=True, kw_only=True)
class PolicyState:
    """The NetworkPolicy of the name that the job's has, as it is."""

    owner_uids: tuple[str, ...] = ()
    spec: Mapping[str, Any] | None = None
    """None when there is none."""
    uid: str | None = None
    resource_version: str | None = None
    """As it was read: what is written over it must still be this one."""


@dataclass(frozen=True, kw_only=True)
class Observed(StoredJob):
    """All that a decision rests on: the job as it was read, and its children."""

    jobset: JobSetState | None = None
    serves_jobsets: bool = True
    """Whether the API server knows JobSets; looked at while the job has none that is recorded."""
    worker_job: WorkerJob | None = None
    """None where the number of workers cannot have been changed."""
    hosts: tuple[Host, ...] = ()
    """Pods that exist and are not being deleted, of the newest attempt only."""
    ended: tuple[Ended, ...] = ()
    """Failures of containers, read from pods now or seen by the watch before."""
    replaced: tuple[Ended, ...] = ()
    """Those after which all went on in place, with another pod: they do not explain how the attempt ends."""
    leaving: tuple[Leaving, ...] = ()
    """Pods that were asked to stop and have not ended yet."""
    pods_left: int = 0
    """Pods of the JobSet that have not ended, those that are being deleted included."""
    lost_nodes: tuple[LostNode, ...] = ()
    """Nodes of failed attempts' pods that are not well."""
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of the nodes on which the job crashed too often, by name; without those that are gone."""
    capacity_notices: tuple[Notice, ...] = ()
    """What scheduler and autoscaler say about the first pod without a node."""
    creation_failure: str | None = None
    """Why pods cannot be created (quota, pod security, an admission webhook), in the API server's words."""
    failed_leaders: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Pods of host 0 that have failed and are still there, by slice, of the newest attempt where single pods are
    replaced."""
    jobset_warning: str | None = None
    """JobSet's own words on why it has no pods."""
    jobset_refusal: str | None = None
    """Why the JobSet could not be created or changed when that was last tried, in the API server's words."""
    queue: QueueState | None = None
    """Of a job with a queue whose JobSet is suspended."""
    progress: Progress | None = None
    in_place: tuple[PodAccount, ...] = ()
    """The accounts of attempts in the same pods, of running pods and of those that have ended."""
    free_slices: int = 0
    """Slices more for which free machines, or quota of its queue, were seen, while the job runs with fewer than it asks
    for."""
    foreign_service: str | None = None
    """Name of the Service by which hosts would find each other, where it was not made for this JobSet."""
    network_policy: PolicyState | None = None
    """The NetworkPolicy of the job's pods; None when it was not looked at."""
    is_namespace_deleted: bool = False
    """Whether pods that have ended keep their namespace from being deleted."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @cached_property
    def job(self) -> TpuTrainingJob:
        """The job that its manifest describes, loaded once for all checks of a decision.

        Raises:
            InvalidJob: its spec breaks a rule; it may have been accepted by an earlier release.
        """
        return load_job(without_status(self.manifest))
