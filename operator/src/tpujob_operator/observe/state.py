"""The observation of one TpuTrainingJob and its children: plain values, read once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from tpujob_contract.exit_codes import ExitCode
from tpujob_operator.observe.in_place import InPlaceAccount
from tpujob_operator.observe.pod_identity import PodPlace
from tpujob_operator.observe.report import Progress
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.stored import StoredJob
from tpujob_resource.rules.load import load_job, without_status


@dataclass(frozen=True, kw_only=True)
class Ended(PodPlace):
    """The end of a trainer container that did not exit with 0."""

    exit_code: int
    message: str
    """The termination message: the last lines, as the launcher or the kubelet wrote them."""
    finished_at: datetime
    """To the second, which is the precision of Kubernetes."""
    was_asked: bool = False
    """Whether it had been asked to stop (deleted, evicted, preempted): a consequence or a disruption, not a cause."""
    asked_at: datetime | None = None
    """When that was, to the second; also set when it had ended before."""
    is_disrupted: bool = False
    """Whether Kubernetes itself marked it (evicted, preempted, node shut down); never so for a crash's peers."""
    node: str | None = None
    """Name of the node it ran on."""
    created_at: datetime | None = None
    """When the pod was made."""
    placed_at: datetime | None = None
    """When it was put on its node, which an autoscaler may have made for it."""
    version: int | None = None
    """Resource version of the pod when its end was first observed; grows with every write in the cluster."""
    asked_version: int | None = None
    """The same for when a request to stop was first observed; None if that was after its end."""

    @property
    def is_consequence(self) -> bool:
        """Whether its exit code or Kubernetes shows that it was asked to stop."""
        return self.was_asked or self.exit_code == ExitCode.STOPPED


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaving(PodPlace):
    """A pod that was asked to stop and whose container has not ended yet."""

    asked_at: datetime
    asked_version: int | None
    """Resource version of the pod when the request was first observed."""
    is_disrupted: bool
    """Whether Kubernetes itself marked it; see `Ended`."""
    node: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Host(PodPlace):
    """One pod of the job."""

    ready: bool
    succeeded: bool
    created_at: datetime | None = None
    """When the pod was created."""
    ip: str | None = None
    finished_at: datetime | None = None
    """When it exited with 0."""
    waiting_reason: str | None = None
    """Why the container does not start, e.g. ImagePullBackOff; None while it does or is only being created."""
    waiting_message: str = ""
    unschedulable: str | None = None
    """The scheduler's message, if it found no node."""


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
    """Resource version when this number was first observed; 0: it has not changed while this process watched."""
    slices: int = 1
    hosts_per_slice: int = 1
    incarnation: int = 1
    """Which JobSet of its job this is."""
    spec_hash: str | None = None
    """Hash of the spec that it was made from, see `jobset.spec_hash`."""
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
    """The desired number of pods."""
    resource_version: str
    """As it was read; the precondition of a change."""


@dataclass(frozen=True, kw_only=True)
class LostNode:
    """A node that had a pod of a failed attempt, and is gone or unhealthy."""

    attempt: int
    name: str
    trouble: str
    """What is wrong, as a phrase after the name: `is not ready`."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """An Event about a pod that waits for a node."""

    reason: str
    message: str
    last_seen: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class QueuePosition:
    """The position of a Workload among the pending ones, in the order in which Kueue tries them."""

    ahead: int
    """Workloads of its ClusterQueue that are tried before it."""
    ahead_in_queue: int
    """Those of them that are in its own LocalQueue."""


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """The state in Kueue of a job that it has not admitted."""

    is_installed: bool = True
    """Whether the cluster serves Kueue's Workloads at all."""
    since: datetime | None = None
    """When the wait started, or started again."""
    message: str = ""
    """Kueue's message on what the job waits for."""
    position: QueuePosition | None = None
    """While it waits for quota, if Kueue reports it."""
    has_quota: bool = False
    """Whether only admission checks are left."""
    cannot_be_admitted: bool = False
    """Whether waiting alone does not help: the queue is missing or admits nothing, or the Workload is deactivated."""
    is_deactivated: bool = False
    """Whether the Workload's `spec.active` is false."""
    eviction: str = ""
    """Kueue's message on why it evicted the job."""
    is_preempted: bool = False
    """Whether it was evicted for another job."""
    preempted_by: str | None = None
    """That job's kind, namespace and name; None: unknown."""


@dataclass(frozen=True, kw_only=True)
class PolicyState:
    """The existing NetworkPolicy with the name of the job's own."""

    owner_uids: tuple[str, ...] = ()
    spec: Mapping[str, Any] | None = None
    """None: there is none."""
    uid: str | None = None
    resource_version: str | None = None
    """As it was read; the precondition of a write."""


@dataclass(frozen=True, kw_only=True)
class Observed(StoredJob):
    """Everything that a decision depends on: the job as it was read, and its children."""

    jobset: JobSetState | None = None
    serves_jobsets: bool = True
    """Whether the API server serves JobSets; checked while none is recorded for the job."""
    worker_job: WorkerJob | None = None
    """None: the number of workers cannot have been changed."""
    hosts: tuple[Host, ...] = ()
    """Pods that exist and are not being deleted, of the newest attempt only."""
    ended: tuple[Ended, ...] = ()
    """Failures of containers, read from pods now or observed by the watch before."""
    replaced: tuple[Ended, ...] = ()
    """Failures after which all programs restarted in place, with another pod: they do not explain the attempt's end."""
    leaving: tuple[Leaving, ...] = ()
    """Pods that were asked to stop and have not ended yet."""
    pods_left: int = 0
    """Pods of the JobSet that have not ended, those that are being deleted included."""
    lost_nodes: tuple[LostNode, ...] = ()
    """Unhealthy nodes of failed attempts' pods."""
    node_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of the nodes on which the job crashed too often, by name; without those that are gone."""
    capacity_notices: tuple[Notice, ...] = ()
    """Events about the first pod without a node."""
    creation_failure: str | None = None
    """The API server's message on why pods cannot be created (quota, pod security, an admission webhook)."""
    failed_leaders: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Failed pods of host 0 that still exist, by slice, of the newest attempt, if single pods are replaced."""
    jobset_warning: str | None = None
    """JobSet's message on why it has no pods."""
    jobset_refusal: str | None = None
    """The API server's message on why it refused the last creation or change of the JobSet."""
    queue: QueueState | None = None
    """Of a job with a queue whose JobSet is suspended."""
    progress: Progress | None = None
    in_place: tuple[InPlaceAccount, ...] = ()
    """The accounts of restarts in the same pods, of running pods and of those that have ended."""
    free_slices: int = 0
    """Additional slices for which machines, or quota of the queue, are free, while the job runs with too few slices."""
    foreign_service: str | None = None
    """Name of the Service by which hosts would find each other, if it was not made for this JobSet."""
    network_policy: PolicyState | None = None
    """The NetworkPolicy of the job's pods; None: it was not read."""
    is_namespace_deleted: bool = False
    """Whether ended pods keep their namespace from being deleted."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @cached_property
    def job(self) -> TpuTrainingJob:
        """The job that its manifest describes, loaded once for all checks of a decision.

        Raises:
            InvalidJob: its spec breaks a rule; it may have been accepted by an earlier release.
        """
        return load_job(without_status(self.manifest))
