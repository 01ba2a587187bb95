"""Changes of a job on the cluster: it is created, stopped, resumed and retried; the server validates strictly."""

from collections.abc import Mapping
from typing import Any

from tpujob.cluster.client import ApiError, Cluster, Object, not_installed
from tpujob.output.errors import CommandError
from tpujob_contract import ExitCode
from tpujob_resource.models.phases import TERMINAL


def require_one_namespace(cluster: Cluster, manifest: Mapping[str, Any]) -> None:
    """Checks that the job's namespace, if it has one, is that of the requests.

    Raises:
        CommandError: it is another one.
    """
    given = manifest["metadata"].get("namespace")
    if given and given != cluster.namespace:
        raise CommandError(
            f"metadata.namespace: {given!r}, and --namespace is {cluster.namespace!r}; leave out one of the two"
        )


def create(cluster: Cluster, manifest: Mapping[str, Any], *, dry_run: bool) -> Object:
    """Creates a job; returns it as the server made it, or would make it.

    Raises:
        CommandError: the server refuses the job or does not know the kind, or a job of that name exists.
    """
    query = "?fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
    try:
        return cluster.create(cluster.job_path() + query, dict(manifest))
    except ApiError as error:
        if error.status == 409:
            name = manifest["metadata"]["name"]
            raise CommandError(
                f"metadata.name: {name!r} is there already; --replace saves, stops and changes it, another name is a "
                f"second job, and `kubectl delete ttj {name}` deletes it (its checkpoints stay, and a job of the same "
                "name goes on from them)"
            ) from error
        raise refused(cluster, error) from error


def refused(cluster: Cluster, error: ApiError) -> CommandError:
    """The error for a write that the server refuses."""
    if error.status == 404 and error.message.startswith("namespaces "):
        return CommandError(
            f"namespace: {cluster.namespace!r} is not there; `kubectl create namespace {cluster.namespace}`, or see -n",
            exit_code=ExitCode.NOT_FOUND,
        )
    if error.status == 404:
        return not_installed()
    if error.status in (400, 422):
        return CommandError(*_lines(error.message))
    return error


def _lines(message: str) -> list[str]:
    """The server's message for each field, without its first words."""
    _, _, rest = message.partition(" is invalid: ")
    return [line.strip(" *[]") for line in (rest or message).splitlines() if line.strip(" *[]")] or [message]


def stop(cluster: Cluster, name: str) -> Object:
    """Asks a job to save and stop; returns the job.

    Raises:
        CommandError: there is none, or it has ended.
    """
    _require_unfinished(cluster.job(name), "stop")
    return cluster.patch(cluster.job_path(name), {"spec": {"suspend": True}})


def resume(cluster: Cluster, name: str) -> Object:
    """Asks a stopped job to continue; returns the job.

    Raises:
        CommandError: there is none, it has ended, or it is not stopped.
    """
    job = cluster.job(name)
    _require_unfinished(job, "resume")
    if not job["spec"].get("suspend"):
        raise CommandError(f"{name}: is not stopped; `tpujob describe {name}` says how it stands")
    return cluster.patch(cluster.job_path(name), {"spec": {"suspend": False}})


def retry(cluster: Cluster, name: str) -> Object:
    """Increments a job's `spec.retry`, so that it restarts from its last checkpoint; returns the job.

    Raises:
        CommandError: there is none, or it has not ended.
    """
    job = cluster.job(name)
    phase = (job.get("status") or {}).get("phase")
    if phase not in TERMINAL:
        raise CommandError(f"{name}: has not ended (it is {phase or 'not seen by the operator yet'}); nothing to retry")
    number = (job["spec"].get("retry") or 0) + 1
    return cluster.patch(cluster.job_path(name), {"spec": {"retry": number}})


def _require_unfinished(job: Mapping[str, Any], verb: str) -> None:
    phase = (job.get("status") or {}).get("phase")
    if phase in TERMINAL:
        raise CommandError(f"cannot {verb}: the job has ended as {phase}; `tpujob retry` starts it anew")
