"""Reads everything that a decision about one job needs. Nothing is decided here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_operator.api.conditions import TERMINAL
from tpujob_operator.kube.client import Object, Storage
from tpujob_operator.observe.from_objects import host_from_pod, jobset_state
from tpujob_operator.observe.nodes import NodeWatch
from tpujob_operator.observe.pod_identity import is_pod_of
from tpujob_operator.observe.report import Progress
from tpujob_operator.observe.report_client import Reports
from tpujob_operator.observe.state import Host, JobSetState, Notice, Observed, PolicyState
from tpujob_operator.observe.terminations import Evidence, Key
from tpujob_operator.observe.untrusted import clean_text
from tpujob_operator.settings import Settings
from tpujob_operator.times import parse_time

NOTICE_LENGTH = 1024
"""Of an event's message (kubernetes/api:core/v1/types.go)."""


class Gatherer:
    """Reads the cluster, and the process that knows how far the job is."""

    def __init__(self, storage: Storage, evidence: Evidence, reports: Reports, settings: Settings) -> None:
        """Keeps where to read."""
        self._storage = storage
        self._evidence = evidence
        self._reports = reports
        self._settings = settings
        self._nodes = NodeWatch(storage, enabled=not settings.watch_namespaces)
        self._refusals: dict[Key, str] = {}
        self._policies_read: dict[Key, float] = {}

    def note_refusal(self, key: Key, message: str) -> bool:
        """Keeps why a JobSet could not be created or changed, until it could; whether that is news."""
        is_news = self._refusals.get(key) != message
        self._refusals[key] = message
        return is_news

    def note_step_done(self, key: Key) -> None:
        """The JobSet could be created or changed."""
        self._refusals.pop(key, None)

    async def gather(self, key: Key) -> tuple[Observed, Object | None] | None:
        """What there is of a job, and its JobSet as read, for the preconditions of a write; None when the job is gone.

        Raises:
            ApiError: something could not be read.
        """
        namespace, name = key
        job = await self._storage.get_job(namespace, name)
        if job is None or "deletionTimestamp" in job["metadata"]:
            self.forget(key)
            return None
        # The name follows from the job's, so the JobSet is found whether it was ever recorded or not.
        jobset = await self._storage.get_jobset(namespace, (job.get("status") or {}).get("jobSet") or name)
        if jobset is None:
            policy = await self._network_policy(key)
            return Observed(manifest=job, jobset_refusal=self._refusals.get(key), network_policy=policy), None
        state = jobset_state(jobset)
        if _needs_no_pods(job, state):
            return Observed(manifest=job, jobset=state), jobset
        pods = [pod for pod in await self._storage.list_pods(namespace, name) if is_pod_of(pod, state)]
        self._evidence.note_all(key, pods)
        hosts = _hosts(pods, state)
        ended = self._evidence.of(key, state.uid)
        observed = Observed(
            manifest=job,
            jobset=state,
            hosts=hosts,
            ended=ended,
            pods_left=sum(_is_left(pod) for pod in pods),
            lost_nodes=await self._nodes.lost(key, ended, pods, booked=_booked(job)),
            creation_failure=await self._creation_failure(job, state, hosts),
            jobset_warning=await self._jobset_warning(namespace, state, pods),
            jobset_refusal=self._refusals.get(key),
            capacity_notices=await self._capacity_notices(namespace, hosts),
            progress=await self._progress(key, state, hosts),
            network_policy=await self._network_policy(key),
        )
        return observed, jobset

    def note_policy_applied(self, key: Key) -> None:
        """The next look sees whether it is as it should be."""
        self._policies_read.pop(key, None)

    def forget_evidence(self, key: Key) -> None:
        """Drops how processes ended; for a job whose next start is a new one."""
        self._evidence.forget(key)
        self._nodes.forget(key)

    def forget(self, key: Key) -> None:
        """Drops what was kept of a job that is gone or over."""
        self.forget_evidence(key)
        self._reports.forget(key)
        self._refusals.pop(key, None)
        self._policies_read.pop(key, None)

    async def _progress(self, key: Key, jobset: JobSetState, hosts: Iterable[Host]) -> Progress | None:
        """What process 0 reports, or what it reported last, if it has ended and no other has taken its place."""
        lead = next((h for h in hosts if (h.slice_index, h.host_index) == (0, 0)), None)
        if lead is None or lead.succeeded:
            return self._evidence.final_report(key, jobset.uid)
        self._evidence.drop_final_report(key)
        if jobset.suspended or jobset.outcome is not None or not lead.ready:
            return None
        # Once a process has finished, this one is about to: there may be no other turn.
        return await self._reports.of(key, lead, at_once=any(host.succeeded for host in hosts))

    async def _network_policy(self, key: Key) -> PolicyState | None:
        """The job's NetworkPolicy, read at the start, after it was applied, and as often as everything is listed."""
        if not self._settings.network_policies:
            return None
        now = asyncio.get_running_loop().time()
        read_at = self._policies_read.get(key)
        if read_at is not None and now - read_at < self._settings.resync_seconds:
            return None
        policy = await self._storage.get_network_policy(key[0], kubernetes_names.child_name(key[1]))
        self._policies_read[key] = now
        if policy is None:
            return PolicyState()
        metadata = policy["metadata"]
        owners = metadata.get("ownerReferences") or []
        return PolicyState(
            owner_uids=tuple(owner["uid"] for owner in owners),
            spec=policy["spec"],
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
        )

    async def _capacity_notices(self, namespace: str, hosts: tuple[Host, ...]) -> tuple[Notice, ...]:
        """What is said about the first pod that has no node."""
        waiting = [host for host in hosts if host.unschedulable is not None]
        if not waiting:
            return ()
        first = min(waiting, key=lambda host: (host.slice_index, host.host_index))
        notices = []
        for event in await self._storage.list_events_of_pod(namespace, first.pod):
            last_seen = parse_time(_last_seen(event))
            if last_seen is not None:
                notices.append(
                    Notice(reason=event.get("reason") or "", message=event.get("message") or "", last_seen=last_seen)
                )
        return tuple(notices)

    async def _jobset_warning(
        self, namespace: str, jobset: JobSetState, pods: Sequence[Mapping[str, Any]]
    ) -> str | None:
        """JobSet's newest warning; only asked for while it should have pods and has none at all."""
        if jobset.suspended or jobset.outcome is not None or jobset.being_deleted or pods:
            return None
        events = await self._storage.list_warnings_about(namespace, kind=kubernetes_names.JOBSET_KIND, name=jobset.name)
        about = [event for event in events if event["involvedObject"].get("uid") == jobset.uid]
        newest = max(about, key=_last_seen, default=None)
        return None if newest is None else clean_text(newest.get("message"), limit=NOTICE_LENGTH) or None

    async def _creation_failure(self, job: Object, jobset: JobSetState, hosts: tuple[Host, ...]) -> str | None:
        """The newest word on why pods of this JobSet cannot be created; only asked for while some are missing."""
        if jobset.suspended or jobset.outcome is not None or len(hosts) >= jobset.hosts:
            return None
        events = await self._storage.list_events(job["metadata"]["namespace"], reason="FailedCreate")
        prefix = f"{jobset.name}-{kubernetes_names.REPLICATED_JOB}-"
        about = [
            event
            for event in events
            if event["involvedObject"].get("kind") == "Job"
            and event["involvedObject"].get("name", "").startswith(prefix)
            and _last_seen(event) >= job["metadata"]["creationTimestamp"]
        ]
        if not about:
            return None
        message: str = max(about, key=_last_seen).get("message", "")
        return message


def _needs_no_pods(job: Mapping[str, Any], jobset: JobSetState) -> bool:
    status = job.get("status") or {}
    is_ours = jobset.owner_uid == job["metadata"]["uid"] and jobset.uid == status.get("jobSetUid")
    return not is_ours or status.get("phase") in TERMINAL


def _hosts(pods: Iterable[Object], jobset: JobSetState) -> tuple[Host, ...]:
    """The pods of the newest attempt that are there to stay."""
    hosts = [
        host_from_pod(pod)
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"] and (pod.get("status") or {}).get("phase") != "Failed"
    ]
    return tuple(host for host in hosts if host.attempt >= jobset.restarts)


def _booked(job: Mapping[str, Any]) -> int:
    booked: int = (job.get("status") or {}).get("bookedRestarts") or 0
    return booked


def _is_left(pod: Object) -> bool:
    """Whether a pod still has something running, or is on its way out."""
    has_ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not has_ended or "deletionTimestamp" in pod["metadata"]


def _last_seen(event: Mapping[str, Any]) -> str:
    """When an event was last repeated; RFC 3339 in UTC sorts as text."""
    series = event.get("series") or {}
    at: str = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    return at
