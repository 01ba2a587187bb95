"""Reads Kubernetes Events about a job's pods and JobSet when something is missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_operator.kube.client import EVENTS, Storage
from tpujob_operator.observe.state import Host, JobSetState, Notice
from tpujob_operator.observe.untrusted import clean_text
from tpujob_resource.models.stored import StoredJob
from tpujob_resource.models.times import parse_time

NOTICE_LENGTH = 1024
"""Of an event's message (kubernetes/api:core/v1/types.go)."""


async def capacity_notices(storage: Storage, namespace: str, hosts: Sequence[Host]) -> tuple[Notice, ...]:
    """The events about the first pod that has no node; empty: every pod has one."""
    waiting = [host for host in hosts if host.unschedulable is not None]
    if not waiting:
        return ()
    first = min(waiting, key=lambda host: (host.slice_index, host.host_index))
    notices = []
    selector = f"involvedObject.kind=Pod,involvedObject.name={first.pod}"
    for event in await storage.list(EVENTS, namespace, fields=selector):
        last_seen = parse_time(_last_seen(event))
        if last_seen is not None:
            notices.append(
                Notice(reason=event.get("reason") or "", message=event.get("message") or "", last_seen=last_seen)
            )
    return tuple(notices)


async def jobset_warning(storage: Storage, namespace: str, jobset: JobSetState) -> str | None:
    """JobSet's newest warning, for a JobSet that should have pods and has none; None: there is no warning."""
    if jobset.being_deleted:
        return None
    selector = f"type=Warning,involvedObject.kind={kubernetes_names.JOBSET_KIND},involvedObject.name={jobset.name}"
    events = await storage.list(EVENTS, namespace, fields=selector)
    about = [event for event in events if event["involvedObject"].get("uid") == jobset.uid]
    newest = max(about, key=_last_seen, default=None)
    return None if newest is None else clean_text(newest.get("message"), limit=NOTICE_LENGTH) or None


async def creation_failure(storage: Storage, job: StoredJob, jobset: JobSetState) -> str | None:
    """The newest message on why missing pods of this JobSet cannot be created; None: there is none."""
    events = await storage.list(EVENTS, job.namespace, fields="type=Warning,reason=FailedCreate")
    prefix = f"{jobset.name}-{kubernetes_names.REPLICATED_JOB}-"
    about = [
        event
        for event in events
        if event["involvedObject"].get("kind") == "Job"
        and event["involvedObject"].get("name", "").startswith(prefix)
        and _last_seen(event) >= job.manifest["metadata"]["creationTimestamp"]
    ]
    if not about:
        return None
    message: str = max(about, key=_last_seen).get("message", "")
    return message


def _last_seen(event: Mapping[str, Any]) -> str:
    """When an event was last repeated; RFC 3339 in UTC sorts as text."""
    series = event.get("series") or {}
    at: str = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or ""
    return at
