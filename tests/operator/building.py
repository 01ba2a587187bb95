"""Objects as the API server would show them, made from the few things that a test is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.statuses import PATHS, flat, grouped
from tpujob_operator.decide.chain import Decision
from tpujob_operator.observe.state import Ended, Host, JobSetState, Observed
from tpujob_resource.messages.conditions import Type
from tpujob_resource.models.status import Status
from tpujob_resource.models.times import format_time

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)
JOB_UID = "job-uid"
JOBSET_UID = "jobset-uid"


def job(*, status: dict[str, Any] | None = None, generation: int = 1, **spec: Any) -> dict[str, Any]:
    """A TpuTrainingJob of two hosts; keywords are spec fields by their YAML names, None removes one."""
    fields = {"accelerator": "cpu:2x1", "image": "example.com/image", "command": ["train"], **spec}
    manifest: dict[str, Any] = {
        "apiVersion": "tpujob.dev/v1beta1",
        "kind": "TpuTrainingJob",
        "metadata": {
            "name": "llama",
            "namespace": "team",
            "uid": JOB_UID,
            "generation": generation,
            "resourceVersion": "7",
            "creationTimestamp": format_time(NOW - timedelta(minutes=5)),
        },
        "spec": {key: value for key, value in fields.items() if value is not None},
    }
    if status is not None:
        manifest["status"] = grouped(status)
    return manifest


def recorded(phase: str = "Running", **fields: Any) -> dict[str, Any]:
    """The fields of the status of a job whose JobSet is recorded, by their paths; keywords are names alone."""
    fields = {
        "phase": phase,
        "message": "as before",
        "observedGeneration": 1,
        "jobSet": "llama",
        "internal.jobSetUid": JOBSET_UID,
        "incarnation": 1,
        "hosts": 2,
        **fields,
    }
    return {PATHS.get(name, name): value for name, value in fields.items()}


def jobset(**fields: Any) -> JobSetState:
    """The job's own JobSet, running; keywords replace fields."""
    values: dict[str, Any] = {
        "name": "llama",
        "uid": JOBSET_UID,
        "owner_uid": JOB_UID,
        "suspended": False,
        "being_deleted": False,
        "outcome": None,
        "hosts_per_slice": 2,
    }
    return JobSetState(**values | fields)


def host(index: int, **fields: Any) -> Host:
    """A host that is ready; keywords replace fields."""
    values: dict[str, Any] = {
        "pod": f"llama-w-0-{index}-abcde",
        "slice_index": 0,
        "host_index": index,
        "attempt": 0,
        "ready": True,
        "succeeded": False,
    }
    return Host(**values | fields)


BOTH = (host(0), host(1))


def ended(index: int, exit_code: int, *, after: float = 0, **fields: Any) -> Ended:
    """The end of a host's container, so many seconds after `NOW`."""
    values: dict[str, Any] = {
        "pod": f"llama-w-0-{index}-abcde",
        "slice_index": 0,
        "host_index": index,
        "attempt": 0,
        "exit_code": exit_code,
        "message": f"last lines of host {index}",
        "finished_at": NOW + timedelta(seconds=after),
    }
    return Ended(**values | fields)


def observed(manifest: dict[str, Any], **fields: Any) -> Observed:
    """What was seen at `NOW`."""
    return Observed(**{"manifest": manifest, "now": NOW, **fields})


def stored(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a status by their paths as the API server has them, from those of `Status`."""
    return flat(Status().updated(fields).as_stored())


def status_of(decision: Decision) -> dict[str, Any]:
    """The fields of the status that a decision writes, by their paths."""
    return flat(decision.status.as_stored())


def condition(status: Any, kind: Type) -> tuple[str, str] | None:
    """Status and reason of a condition, None when it is absent."""
    found = next((c for c in status["conditions"] if c["type"] == kind), None)
    return (found["status"], found["reason"]) if found else None


def pod(
    index: int = 0,
    *,
    state: dict[str, Any] | None = None,
    phase: str = "Running",
    ready: bool = True,
    jobset_uid: str = JOBSET_UID,
    attempt: int = 0,
    deleted_after: float | None = None,
    grace: int = 30,
    **status: Any,
) -> dict[str, Any]:
    """A pod of the job; `deleted_after` is when deletion was asked for, in seconds after `NOW`."""
    metadata: dict[str, Any] = {
        "name": f"llama-w-0-{index}-abcde",
        "namespace": "team",
        "uid": f"pod-{attempt}-{index}",
        "labels": {
            "tpujob.dev/job-name": "llama",
            "jobset.sigs.k8s.io/jobset-name": "llama",
            "jobset.sigs.k8s.io/jobset-uid": jobset_uid,
            "jobset.sigs.k8s.io/job-index": "0",
            "jobset.sigs.k8s.io/restart-attempt": str(attempt),
            "batch.kubernetes.io/job-completion-index": str(index),
        },
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "llama-w-0", "controller": True}],
    }
    if deleted_after is not None:
        metadata["deletionTimestamp"] = format_time(NOW + timedelta(seconds=deleted_after + grace))
        metadata["deletionGracePeriodSeconds"] = grace
    containers = [{"name": "main", "state": state or {"running": {}}}]
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "metadata": metadata,
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": containers, **status},
    }


def terminated(exit_code: int, *, after: float = 0, message: str = "") -> dict[str, Any]:
    """The state of a container that ended so many seconds after `NOW`."""
    finished_at = format_time(NOW + timedelta(seconds=after))
    return {"terminated": {"exitCode": exit_code, "message": message, "finishedAt": finished_at, "reason": "Error"}}
