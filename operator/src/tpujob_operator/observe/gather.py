"""Collects what a decision about one job needs, from the cache or by fresh reads. Nothing is decided here."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from tpujob_contract import kubernetes_names
from tpujob_operator.base.settings import Settings
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import (
    JOBS,
    JOBSETS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    WORKER_JOBS,
    Storage,
)
from tpujob_operator.kube.requests import Object
from tpujob_operator.observe.cache import Cache, KeptJobSet, kept_jobset
from tpujob_operator.observe.events import capacity_notices, creation_failure, jobset_warning
from tpujob_operator.observe.free_quota import FreeQuotaReader
from tpujob_operator.observe.free_slices import FreeSliceReader
from tpujob_operator.observe.from_objects import account_by
from tpujob_operator.observe.in_place import InPlaceAccount, last_restart
from tpujob_operator.observe.missing_rights import MissingRights
from tpujob_operator.observe.nodes import NodeWatch
from tpujob_operator.observe.pod_state import PodState, pod_state
from tpujob_operator.observe.report import Progress
from tpujob_operator.observe.report_poller import ReportPoller
from tpujob_operator.observe.services import ServiceReader
from tpujob_operator.observe.state import Host, JobSetState, Observed, PolicyState, QueueState, WorkerJob
from tpujob_operator.observe.terminations import Key, TerminationCache
from tpujob_operator.observe.workloads import WorkloadReader
from tpujob_resource.models.job import is_elastic, shares_units
from tpujob_resource.models.phases import RUNNING_PHASES, TERMINAL
from tpujob_resource.models.spec import launcher_serves_account
from tpujob_resource.models.stored import StoredJob

OVERDUE_SECONDS = 2.0
"""Pods usually exist by then, so the reason for missing ones need not be read earlier."""


class Gatherer:
    """Collects the observation of a job, from the cache or from the API server."""

    def __init__(
        self,
        storage: Storage,
        cache: Cache,
        evidence: TerminationCache,
        reports: ReportPoller,
        settings: Settings,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Stores the sources, and the clock for the time of each observation."""
        self._clock = clock
        self._storage = storage
        self._cache = cache
        self._evidence = evidence
        self._reports = reports
        self._settings = settings
        self._namespace_rights = MissingRights(
            "its Namespace", "it waits for pods of jobs when it is deleted", interval_seconds=settings.resync_seconds
        )
        self._nodes = NodeWatch(storage, enabled=not settings.watch_namespaces)
        self._free_slices = FreeSliceReader(storage, enabled=not settings.watch_namespaces)
        self._free_quota = FreeQuotaReader(storage, enabled=not settings.watch_namespaces)
        self._refusals: dict[Key, str] = {}
        self._policies_read: dict[Key, float] = {}
        self._services = ServiceReader(storage, interval_seconds=settings.resync_seconds)
        self._workloads = WorkloadReader(storage, clusterwide=not settings.watch_namespaces)
        self._incomplete_since: dict[Key, float] = {}
        self._unlabelled: set[Key] = set()
        self.is_current: Callable[[str], bool] = lambda namespace: False
        """Whether the cache holds everything in a namespace; until then all is read from the API server."""

    def note_refusal(self, key: Key, message: str) -> bool:
        """Keeps, until `note_step_done`, why a JobSet could not be created or changed; returns whether that is new."""
        is_news = self._refusals.get(key) != message
        self._refusals[key] = message
        return is_news

    def note_step_done(self, key: Key) -> None:
        """Drops the recorded refusal: the JobSet was created or changed."""
        self._refusals.pop(key, None)

    async def gather(self, key: Key, *, fresh: bool = False) -> tuple[Observed, Object | None] | None:
        """The observation of a job, and its JobSet for the preconditions of a write; None: the job is gone.

        Args:
            key: Of the job.
            fresh: Whether everything is read from the API server, for a decision that cannot be undone.

        Raises:
            ApiError: something could not be read.
        """
        fresh = fresh or not self.is_current(key[0])
        manifest = await self._job(key, fresh=fresh)
        if manifest is None or "deletionTimestamp" in manifest["metadata"]:
            self.forget(key)
            return None
        job = StoredJob(manifest=manifest)
        if job.other_manager is not None:
            self.forget(key)
            return Observed(manifest=manifest, now=self._clock()), None
        try:
            kept = await self._jobset(key, job, fresh=fresh)
        except errors.NotServed:
            # A recorded JobSet must not be taken for missing because of this.
            if job.status.internal.job_set_uid or await self._storage.serves(JOBSETS):
                raise
            return Observed(manifest=manifest, serves_jobsets=False, now=self._clock()), None
        if kept is None:
            policy = await self._network_policy(key, job, None)
            return Observed(
                manifest=manifest, jobset_refusal=self._refusals.get(key), network_policy=policy, now=self._clock()
            ), None
        if _needs_no_pods(job, kept.state):
            # A JobSet that is about to be recorded may be resumed in the same reconcile.
            is_next = kept.state.owner_uid == job.uid and not job.status.internal.job_set_uid
            service = await self._foreign_service(key, job, kept.state) if is_next else None
            seen = Observed(manifest=manifest, jobset=kept.state, foreign_service=service, now=self._clock())
            return seen, kept.reference
        return await self._with_pods(key, job, kept.state, fresh=fresh), kept.reference

    async def _with_pods(self, key: Key, job: StoredJob, state: JobSetState, *, fresh: bool) -> Observed:
        # Read at each reconcile: few jobs are ever resized, and their Jobs are not watched.
        worker_job = await self._worker_job(job, state)
        if worker_job is not None:
            state = replace(state, hosts_per_slice=worker_job.workers)
        pods = [pod for pod in await self._pods(key, fresh=fresh) if pod.is_of(state)]
        hosts = tuple(pod.host for pod in pods if pod.is_there_to_stay and pod.host.attempt >= state.restarts)
        progress = self._progress(key, job, state, hosts)
        in_place = (*self._evidence.accounts(key, state.uid), *_told_by(progress, hosts))
        restarted_at = last_restart(in_place, state.restarts)
        if restarted_at is not None and self._evidence.note_replaced(key, state.uid, hosts, restarted_at):
            self._nodes.forget_stopped(key, state.restarts)
        ended = self._evidence.of(key, state.uid)
        is_overdue = self._is_overdue(key, state, hosts)
        return Observed(
            manifest=job.manifest,
            jobset=state,
            worker_job=worker_job,
            hosts=hosts,
            ended=ended,
            replaced=self._evidence.replaced(key, state.uid),
            leaving=self._evidence.leaving(key, state.uid),
            pods_left=sum(pod.is_left for pod in pods),
            lost_nodes=await self._nodes.lost(key, ended, pods, judged=job.status.internal.booked_restarts or 0),
            node_labels=await self._suspects(key, job, state, hosts),
            creation_failure=await creation_failure(self._storage, job, state) if is_overdue else None,
            failed_leaders=_failed_leaders(job, state, pods) if is_overdue else {},
            jobset_warning=await jobset_warning(self._storage, key[0], state) if is_overdue and not pods else None,
            jobset_refusal=self._refusals.get(key),
            foreign_service=await self._foreign_service(key, job, state),
            capacity_notices=await capacity_notices(self._storage, key[0], hosts),
            queue=await self._queue(key, job, state),
            progress=progress,
            in_place=in_place,
            free_slices=await self._more_slices(key, job, state, hosts),
            network_policy=await self._network_policy(key, job, state),
            is_namespace_deleted=await self._is_namespace_deleted(key, job, pods),
            now=self._clock(),
        )

    async def _is_namespace_deleted(self, key: Key, job: StoredJob, pods: Sequence[PodState]) -> bool:
        """Whether the namespace is being deleted, but held by ended pods that wait for others, which cannot be created.

        Jobs with `backoffLimitPerIndex` keep such pods (kubernetes/kubernetes:pkg/controller/job/backoff_utils.go).
        """
        keeps_pods = job.spec.workers is not None or job.spec.in_place_restarts > 0
        is_held = any(pod.being_deleted and not pod.is_left for pod in pods)
        if not keeps_pods or not is_held or self._namespace_rights.is_missing(key[0]):
            return False
        try:
            namespace = await self._storage.get(NAMESPACES, None, key[0])
        except errors.Forbidden as error:
            self._namespace_rights.note(key[0], error)
            return False
        return namespace is not None and "deletionTimestamp" in namespace["metadata"]

    async def _suspects(
        self, key: Key, job: StoredJob, jobset: JobSetState, hosts: Sequence[Host]
    ) -> Mapping[str, Mapping[str, str]]:
        """The labels of nodes that may have to be avoided, while hosts start again."""
        if sum(host.ready or host.succeeded for host in hosts) >= jobset.hosts:
            return {}
        return await self._nodes.labels(key, [n.node for n in job.status.node_failures or () if n.is_suspect])

    async def _more_slices(self, key: Key, job: StoredJob, jobset: JobSetState, hosts: Sequence[Host]) -> int:
        """The number of missing slices for which machines, or quota of the queue, are free; 0: the job may not grow."""
        missing = 0 if job.spec.workers else (job.spec.slices or 1) - jobset.slices
        is_running = jobset.outcome is None and sum(host.ready for host in hosts) >= jobset.hosts
        earliest = job.status.slices.next_growth_time
        if missing <= 0 or not is_running or (earliest is not None and self._clock() < earliest):
            self._free_slices.forget(key)
            self._free_quota.forget(key)
            return 0
        if job.spec.queue:
            return await self._free_quota.count(key, jobset.name, jobset.uid, wanted=missing)
        return await self._free_slices.count(key, jobset.name, wanted=missing)

    async def _job(self, key: Key, *, fresh: bool) -> Object | None:
        if not fresh:
            return self._cache.jobs.get(key)
        job = await self._storage.get(JOBS, *key)
        if job is not None:
            self._cache.jobs.put(job)
        return job

    async def _jobset(self, key: Key, job: StoredJob, *, fresh: bool) -> KeptJobSet | None:
        """The JobSet of the recorded name, or else of the job's name, so it is found even if it was never recorded.

        One without our label is foreign, and is not in the cache.
        """
        namespace, name = key[0], job.status.job_set or key[1]
        if not fresh and key not in self._unlabelled:
            return self._cache.jobsets.get(namespace, name)
        jobset = await self._storage.get(JOBSETS, namespace, name)
        self._unlabelled.discard(key)
        if jobset is None:
            return None
        if kubernetes_names.JOB_NAME in (jobset["metadata"].get("labels") or {}):
            self._cache.jobsets.put(jobset)
        else:
            self._unlabelled.add(key)
        return kept_jobset(jobset)

    async def _pods(self, key: Key, *, fresh: bool) -> list[PodState]:
        if not fresh:
            return self._cache.pods.of(key)
        pods = await self._storage.list(PODS, key[0], labels=f"{kubernetes_names.JOB_NAME}={key[1]}")
        self._evidence.note_all(key, pods)
        return [state for pod in pods if (state := pod_state(pod)) is not None]

    def note_policy_applied(self, key: Key) -> None:
        """Records that the job's NetworkPolicy is as it should be."""
        self._policies_read[key] = asyncio.get_running_loop().time()

    def note_policy_found(self, key: Key) -> None:
        """Records that there is a NetworkPolicy of the job's name; the next reconcile reads it."""
        self._policies_read[key] = float("-inf")

    def note_resumed(self, key: Key, jobset: JobSetState) -> None:
        """Drops evidence from before the JobSet was resumed: it says nothing about the start that follows."""
        self._evidence.forget_stopped(key, jobset.uid, jobset.restarts)
        self._nodes.forget_stopped(key, jobset.restarts)

    def forget_start(self, key: Key) -> None:
        """Drops how processes ended, for a suspended job: its next start is independent of that."""
        self._evidence.forget_start(key)
        self._nodes.forget(key)

    def forget(self, key: Key) -> None:
        """Drops everything about a job that is gone or over."""
        self._evidence.forget(key)
        self._nodes.forget(key)
        self._reports.forget(key)
        self._refusals.pop(key, None)
        self._policies_read.pop(key, None)
        self._services.forget(key)
        self._free_slices.forget(key)
        self._free_quota.forget(key)
        self._workloads.forget(key)
        self._incomplete_since.pop(key, None)
        self._unlabelled.discard(key)

    def _progress(self, key: Key, job: StoredJob, jobset: JobSetState, hosts: Sequence[Host]) -> Progress | None:
        """The last report of process 0; if it has ended and was not replaced, the report that it left."""
        lead = _reporter(job, hosts)
        if lead is None or lead.succeeded:
            self._reports.forget(key)
            return self._evidence.final_report(key, jobset.uid)
        self._evidence.drop_final_report(key)
        if jobset.suspended or jobset.outcome is not None or not lead.ready:
            self._reports.forget(key)
            return None
        return self._reports.follow(
            key, lead, interval=self._report_interval(job, hosts), asks_launcher=launcher_serves_account(job.spec)
        )

    async def _worker_job(self, job: StoredJob, jobset: JobSetState) -> WorkerJob | None:
        """The Job whose size is, or was, changed by an edit of `spec.workers`."""
        recorded = jobset.hosts if job.status.hosts is None else job.status.hosts
        was_resized = job.spec.workers != jobset.hosts or recorded != jobset.hosts
        if not was_resized or not is_elastic(job.spec) or jobset.outcome is not None or jobset.being_deleted:
            return None
        name = kubernetes_names.worker_job_name(jobset.name)
        found = await self._storage.get(WORKER_JOBS, job.namespace, name)
        if found is None:
            return None
        workers, version = found["spec"]["parallelism"], found["metadata"]["resourceVersion"]
        return WorkerJob(name=name, workers=workers, resource_version=version)

    def _report_interval(self, job: StoredJob, hosts: Sequence[Host]) -> float:
        """Seconds between reads: few until the first step, and once a process has finished: the others are about to."""
        often, seldom = self._settings.report_interval_seconds, self._settings.progress_interval_seconds
        awaits_first_step = job.spec.trainer is not None and job.status.step is None
        return often if awaits_first_step or any(host.succeeded for host in hosts) else max(often, seldom)

    async def _network_policy(self, key: Key, job: StoredJob, jobset: JobSetState | None) -> PolicyState | None:
        """The job's NetworkPolicy, read once per resync interval while pods may run; None: it was not read.

        That of a job without a JobSet is assumed to be missing: creating it shows whether it is.
        """
        if not self._settings.network_policies:
            return None
        now = asyncio.get_running_loop().time()
        read_at = self._policies_read.get(key)
        if read_at is None and jobset is None:
            return PolicyState()
        is_at_rest = jobset is not None and jobset.suspended and job.spec.suspend
        if read_at is None and is_at_rest:
            return None
        if read_at is not None and (now - read_at < self._settings.resync_seconds or is_at_rest):
            return None
        policy = await self._storage.get(NETWORK_POLICIES, key[0], kubernetes_names.child_name(key[1]))
        self._policies_read[key] = now
        return PolicyState() if policy is None else _policy_state(policy)

    async def _foreign_service(self, key: Key, job: StoredJob, jobset: JobSetState) -> str | None:
        """Name of the foreign Service that JobSet would take for its own; None: there is none."""
        if job.spec.workers or (jobset.suspended and job.spec.suspend):
            return None
        is_running = job.status.phase in RUNNING_PHASES
        return await self._services.foreign(key, jobset, is_running=is_running)

    async def _queue(self, key: Key, job: StoredJob, jobset: JobSetState) -> QueueState | None:
        """The job's state in Kueue, while the JobSet is suspended."""
        if not job.spec.queue or not jobset.suspended or jobset.outcome is not None:
            self._workloads.forget(key)
            return None
        return await self._workloads.state(key, jobset.uid)

    def _is_overdue(self, key: Key, jobset: JobSetState, hosts: Sequence[Host]) -> bool:
        """Whether pods have been missing for so long that an Event may say why."""
        if jobset.suspended or jobset.outcome is not None or len(hosts) >= jobset.hosts:
            self._incomplete_since.pop(key, None)
            return False
        now = asyncio.get_running_loop().time()
        return now - self._incomplete_since.setdefault(key, now) >= OVERDUE_SECONDS


def _told_by(progress: Progress | None, hosts: Sequence[Host]) -> Iterator[InPlaceAccount]:
    """The account of restarts in the running pods, from the report of process 0."""
    lead = next((host for host in hosts if (host.slice_index, host.host_index) == (0, 0)), None)
    if lead is not None and progress is not None and not progress.is_final and progress.in_place is not None:
        yield account_by(lead, progress.in_place)


def _failed_leaders(job: StoredJob, jobset: JobSetState, pods: Sequence[PodState]) -> Mapping[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for pod in pods if job.spec.in_place_restarts else ():
        is_leader = pod.host.host_index == 0 and pod.host.attempt == jobset.restarts
        if is_leader and pod.phase == "Failed" and not pod.being_deleted:
            found[pod.host.slice_index] = (*found.get(pod.host.slice_index, ()), pod.host.pod)
    return found


def _reporter(job: StoredJob, hosts: Sequence[Host]) -> Host | None:
    """The host whose report is read: process 0, or if workers share units the first running one: all know the same."""
    running = [host for host in hosts if host.ready and not host.succeeded]
    if running and shares_units(job.spec):
        return min(running, key=lambda host: host.host_index)
    return next((host for host in hosts if (host.slice_index, host.host_index) == (0, 0)), None)


def _needs_no_pods(job: StoredJob, jobset: JobSetState) -> bool:
    is_ours = jobset.owner_uid == job.uid and jobset.uid == job.status.internal.job_set_uid
    return not is_ours or job.status.phase in TERMINAL


def _policy_state(policy: Object) -> PolicyState:
    metadata = policy["metadata"]
    return PolicyState(
        owner_uids=tuple(owner["uid"] for owner in metadata.get("ownerReferences") or []),
        spec=policy["spec"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
    )
