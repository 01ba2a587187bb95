"""Reads everything that a decision about one job needs. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tpujob_contract import labels
from tpujob_operator.children import host_from_pod, jobset_state
from tpujob_operator.conditions import TERMINAL
from tpujob_operator.evidence import Evidence, Key
from tpujob_operator.observed import Host, JobSetState, Observed
from tpujob_operator.report import Reports
from tpujob_operator.storage import Object, Storage

JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"


class Gatherer:
    """Reads the cluster, and the process that knows how far the job is."""

    def __init__(self, storage: Storage, evidence: Evidence, reports: Reports) -> None:
        """Keeps where to read."""
        self._storage = storage
        self._evidence = evidence
        self._reports = reports
        self._refusals: dict[Key, str] = {}

    def note_refusal(self, key: Key, message: str) -> bool:
        """Keeps why a JobSet could not be created, until there is one; whether that is news."""
        is_news = self._refusals.get(key) != message
        self._refusals[key] = message
        return is_news

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
            return Observed(manifest=job, jobset_refusal=self._refusals.get(key)), None
        self._refusals.pop(key, None)
        state = jobset_state(jobset)
        if _needs_no_pods(job, state):
            return Observed(manifest=job, jobset=state), jobset
        pods = await self._storage.list_pods(namespace, name)
        self._evidence.note_all(key, pods)
        hosts = _hosts(pods, state)
        observed = Observed(
            manifest=job,
            jobset=state,
            hosts=hosts,
            ended=self._evidence.of(key, state.uid),
            creation_failure=await self._creation_failure(job, state, hosts),
            progress=await self._progress(key, state, hosts),
        )
        return observed, jobset

    def forget(self, key: Key) -> None:
        """Drops what was kept of a job that is gone or over."""
        self._evidence.forget(key)
        self._reports.forget(key)
        self._refusals.pop(key, None)

    async def _progress(self, key: Key, jobset: JobSetState, hosts: Iterable[Host]) -> Any:
        if jobset.suspended or jobset.outcome is not None:
            return None
        lead = next((h for h in hosts if (h.slice_index, h.host_index) == (0, 0) and h.ready), None)
        return await self._reports.of(key, lead) if lead is not None else None

    async def _creation_failure(self, job: Object, jobset: JobSetState, hosts: tuple[Host, ...]) -> str | None:
        """The newest word on why pods of this JobSet cannot be created; only asked for while some are missing."""
        if jobset.suspended or jobset.outcome is not None or len(hosts) >= jobset.hosts:
            return None
        events = await self._storage.list_events(job["metadata"]["namespace"], reason="FailedCreate")
        prefix = f"{jobset.name}-{labels.REPLICATED_JOB}-"
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
        if pod["metadata"]["labels"].get(JOBSET_UID, jobset.uid) == jobset.uid
        and "deletionTimestamp" not in pod["metadata"]
        and (pod.get("status") or {}).get("phase") != "Failed"
    ]
    return tuple(host for host in hosts if host.attempt >= jobset.restarts)


def _last_seen(event: Mapping[str, Any]) -> str:
    """When an event was last repeated; RFC 3339 in UTC sorts as text."""
    series = event.get("series") or {}
    at: str = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    return at
