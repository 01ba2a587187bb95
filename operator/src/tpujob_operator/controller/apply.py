"""Carries out a decision: the status first, then the one step. Preconditions of the writes prevent stale actions."""

import contextlib
import hashlib
import logging
from datetime import UTC, datetime

from tpujob_contract import kubernetes_names, shared_secret
from tpujob_operator.base import metrics
from tpujob_operator.decide.chain import Decision, Note
from tpujob_operator.decide.verdict import Step
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import (
    EVENTS,
    JOBS,
    JOBSETS,
    NETWORK_POLICIES,
    SECRETS,
    WORKER_JOBS,
    WORKLOADS,
    Storage,
    Target,
)
from tpujob_operator.kube.requests import Object
from tpujob_operator.observe.state import Observed
from tpujob_resource.models.job import prebuilt_workload

logger = logging.getLogger(__name__)

COMPONENT = "tpujob-operator"


async def act(storage: Storage, observed: Observed, jobset: Object | None, decision: Decision) -> bool:
    """Carries out a decision: writes the status, the NetworkPolicy and the number of workers, then takes the step.

    The observation may be old. A status write requires the observed resource version of the job; before a step without
    a status write, that version is confirmed by a read.

    Args:
        storage: Where to write.
        observed: What the decision was made from.
        jobset: The name, uid and resource version of the JobSet then.
        decision: What to do.

    Returns:
        Whether there is a NetworkPolicy of the job's name that was not observed before.

    Raises:
        Conflict: something has changed since it was read; nothing after that point was done.
        ApiError: a write failed.
    """
    job = dict(observed.manifest)
    is_confirmed = await _write_status(storage, job, observed, decision)
    if not is_confirmed and (decision.step or decision.network_policy or decision.workers is not None):
        await _confirm(storage, job)
    has_other_policy = decision.network_policy is not None and not await _write_network_policy(
        storage, decision.network_policy
    )
    if decision.workers is not None:
        await _resize(storage, observed, decision.workers)
    if decision.step is Step.CREATE:
        assert decision.manifest is not None  # comes with the step
        await _create(storage, decision.manifest, decision.secret)
    elif decision.step is not None:
        assert jobset is not None  # the other steps change an observed one
        prebuilt = {name for found in prebuilt_workload(job["metadata"]).values() for name in found.values()}
        if decision.step is Step.DELETE and prebuilt:
            await _keep_workload(storage, job, prebuilt.pop())
        await _change(storage, jobset, decision.step)
    return has_other_policy


async def _confirm(storage: Storage, job: Object) -> None:
    """Checks that the job still has the observed resource version.

    Raises:
        Conflict: it has another one, or is gone.
    """
    metadata = job["metadata"]
    now = await storage.get(JOBS, metadata["namespace"], metadata["name"])
    if now is None or now["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
        what = f"confirm {kubernetes_names.PLURAL} {metadata['namespace']}/{metadata['name']}"
        raise errors.Conflict(what, None, "it has changed since it was seen")


async def _write_status(storage: Storage, job: Object, observed: Observed, decision: Decision) -> bool:
    """Writes the changes of the status, and their Events; returns whether there are any."""
    if not decision.patch:
        return False
    await storage.patch(JOBS, Target.unchanged(job), {"status": dict(decision.patch)}, subresource="status")
    metrics.STATUS_WRITES.inc()
    before, after = observed.status.phase, decision.status.phase
    if before != after:
        metadata = job["metadata"]
        logger.info(
            "Phase changed: %s/%s, %s to %s: %s",
            metadata["namespace"],
            metadata["name"],
            before or "nothing",
            after,
            decision.status.message or "",
        )
    # After the status: a crash in between loses an Event, and never duplicates one.
    for note in (*decision.in_place_notes, *([] if decision.note is None else [decision.note])):
        await _tell(storage, job, note)
    return True


async def _tell(storage: Storage, job: Object, note: Note) -> None:
    try:
        await storage.create(EVENTS, event(job, note, datetime.now(UTC)))
    except errors.AlreadyExists:
        return
    except errors.ApiError as error:
        # The status has the same information; a namespace that is being deleted, for example, accepts no Events.
        logger.warning("Event not written: %s", error)


async def _write_network_policy(storage: Storage, policy: Object) -> bool:
    """Creates the NetworkPolicy, or patches the observed one; returns False if there is one that was not observed."""
    metadata = policy["metadata"]
    if "uid" in metadata:
        await storage.patch(NETWORK_POLICIES, Target.unchanged(policy), policy)
    else:
        try:
            await storage.create(NETWORK_POLICIES, policy)
        except errors.AlreadyExists:
            logger.info("NetworkPolicy was there: %s/%s", metadata["namespace"], metadata["name"])
            return False
    logger.info("NetworkPolicy written: %s/%s", metadata["namespace"], metadata["name"])
    return True


async def _resize(storage: Storage, observed: Observed, workers: int) -> None:
    assert observed.worker_job is not None  # its size is what was found to differ
    job, metadata = observed.worker_job, observed.manifest["metadata"]
    # Both in one write: the API server requires that they stay equal.
    size = {"spec": {"parallelism": workers, "completions": workers}}
    target = Target(metadata["namespace"], job.name, resource_version=job.resource_version)
    await storage.patch(WORKER_JOBS, target, size)
    logger.info("Workers changed: %s/%s, %d to %d", metadata["namespace"], metadata["name"], job.workers, workers)


async def _create(storage: Storage, manifest: Object, secret: Object | None) -> None:
    metadata = manifest["metadata"]
    if secret is not None:
        # A later incarnation finds the one of the first.
        with contextlib.suppress(errors.AlreadyExists):
            drawn = {kubernetes_names.SECRET_KEY: shared_secret.draw()}
            await storage.create(SECRETS, {**secret, "stringData": drawn})
    try:
        await storage.create(JOBSETS, manifest)
    except errors.AlreadyExists as error:
        # Created by an earlier run of the operator, or by another client; a fresh read shows which.
        raise errors.Conflict(error.request, error.status, error.message) from error
    metrics.JOBSETS_CREATED.inc()
    logger.info("JobSet created: %s/%s", metadata["namespace"], metadata["name"])


async def _keep_workload(storage: Storage, job: Object, name: str) -> None:
    """Makes the job an owner of MultiKueue's Workload, which would otherwise be deleted with its JobSet.

    Without the Workload MultiKueue copies no status back, and takes this cluster for lost: the job would run again
    elsewhere.
    """
    metadata = job["metadata"]
    workload = await storage.get(WORKLOADS[0], metadata["namespace"], name)
    owners = [] if workload is None else workload["metadata"].get("ownerReferences") or []
    if workload is None or any(owner["uid"] == metadata["uid"] for owner in owners):
        return
    kind = {"apiVersion": kubernetes_names.API_VERSION, "kind": kubernetes_names.KIND}
    owner = {**kind, "name": metadata["name"], "uid": metadata["uid"]}
    patch = {"metadata": {"ownerReferences": [*owners, owner]}}
    await storage.patch(WORKLOADS[0], Target.unchanged(workload), patch)


async def _change(storage: Storage, jobset: Object, step: Step) -> None:
    if step is Step.DELETE:
        # It exists, being deleted, until its pods are gone: they must not run at the same time as those of another one.
        await storage.delete(JOBSETS, Target.same(jobset), propagation="Foreground")
    else:
        await storage.patch(JOBSETS, Target.unchanged(jobset), {"spec": {"suspend": step is Step.SUSPEND}})
    metadata = jobset["metadata"]
    logger.info("JobSet step done: %s/%s, %s", metadata["namespace"], metadata["name"], step.name.lower())


def event(job: Object, note: Note, now: datetime) -> Object:
    """The core Event for a note.

    Its name is derived from the version of the job before the write, so that a repeated write makes no second one.
    """
    metadata = job["metadata"]
    identity = f"{metadata['uid']}/{metadata['resourceVersion']}/{note.reason}{note.key}"
    suffix = hashlib.sha256(identity.encode()).hexdigest()[:16]
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{suffix}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": kubernetes_names.API_VERSION,
            "kind": kubernetes_names.KIND,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Warning" if note.warning else "Normal",
        "reason": note.reason,
        "message": note.message[:1024],  # the API server's limit
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
