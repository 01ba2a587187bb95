"""Jobs on a cluster: `tpujob.submit`, `get`, `wait`, `logs` and the verbs that change one."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpujob.cluster import changing, watch
from tpujob.cluster.client import Cluster, Object
from tpujob.cluster.logs import job_logs
from tpujob.cluster.replacing import submit_job
from tpujob.commands.api.runs import document_of, read_checkpoints, read_metrics, settings_of
from tpujob.job.code.job_code import attach
from tpujob.job.job_file import load_document
from tpujob.job.set_fields import with_fields
from tpujob.output.errors import CommandError
from tpujob_resource.models.phases import Phase
from tpujob_resource.rules.warnings import submission_warnings

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Job:
    """A TpuTrainingJob as it was when it was read from the cluster."""

    resource: Mapping[str, Any]
    """The whole object, as decoded JSON."""
    cluster: Cluster = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.resource["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.resource["metadata"]["namespace"])

    @property
    def status(self) -> Mapping[str, Any]:
        """Phase, step, loss, restarts and more; empty until the operator writes it."""
        return self.resource.get("status") or {}

    @property
    def phase(self) -> str | None:
        """Running, Succeeded, Failed and others; None until the operator writes it."""
        return self.status.get("phase")

    @property
    def metrics(self) -> pd.DataFrame:
        """Its metrics by step, read from its checkpoint directory.

        Raises:
            CommandError: it has none, or the directory cannot be read from here, or pandas is not installed.
        """
        return read_metrics(self._checkpoint_dir)

    @property
    def checkpoints(self) -> list[dict[str, Any]]:
        """Its committed checkpoints, newest first.

        Raises:
            CommandError: it has none, or the directory cannot be read from here.
        """
        return read_checkpoints(self._checkpoint_dir)

    @property
    def _checkpoint_dir(self) -> str:
        directory = self.resource["spec"].get("checkpointDir")
        if directory is None:
            raise CommandError(f"spec.checkpointDir: {self.name} has none, so nothing of it is kept", exit_code=1)
        return str(directory)


class JobFailed(CommandError):  # noqa: N818 - reads as what happened, as RunFailed does
    """A job on a cluster that ended with an error, or cannot start until it is edited."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"{job.name}: {watch.headline(job.status)}", exit_code=1)
        self.job = job


def submit(
    job: str | Path | Mapping[str, Any],
    *,
    set: Mapping[str, Any] | None = None,  # noqa: A002 - the option is called --set
    namespace: str | None = None,
    context: str | None = None,
    code: str | Path | None = None,
    commit: str | None = None,
    code_to: str | None = None,
    dry_run: bool = False,
    replace: bool = False,
) -> Job:
    """Creates a job on the cluster, as `tpujob submit --no-follow` does.

    This machine and the API server check it first. Valid but probably unintended settings give a `UserWarning`.

    Args:
        job: The file of a TpuTrainingJob, or its content as a dict.
        set: Fields to set: `{"spec.trainer.steps": 100}`; None removes one.
        namespace: None: that of the job, else that of the context.
        context: Of the kubeconfig; None: its current one.
        code: Folder of your code: what git tracks and what you changed goes into the job.
        commit: Of that folder.
        code_to: Where archives of code go; None: `checkpointDir/code`.
        dry_run: Have the server check it, and create nothing.
        replace: Give an existing job of this name this spec; if necessary, it is saved and stopped first, then resumed.

    Raises:
        CommandError: a wrong field, no cluster, or a refusal of the server.
    """
    document, source = document_of(job)
    manifest = with_fields(document, settings_of(set))
    for warning in submission_warnings(load_document(manifest, source)):
        warnings.warn(warning, stacklevel=2)
    if code is not None or commit is not None:
        manifest, _, _ = attach(manifest, Path(code or "."), code_to, revision=commit, is_rehearsal=dry_run)
    cluster = Cluster.connect(context=context, namespace=namespace or manifest["metadata"].get("namespace"))
    created, _ = submit_job(cluster, manifest, dry_run=dry_run, replace=replace, say=print)
    return Job(created, cluster)


def get(name: str, *, namespace: str | None = None, context: str | None = None) -> Job:
    """A job of the cluster.

    Raises:
        CommandError: there is no job of that name, or no cluster.
    """
    cluster = Cluster.connect(context=context, namespace=namespace)
    return Job(cluster.job(name), cluster)


def list_jobs(*, namespace: str | None = None, context: str | None = None) -> list[Job]:
    """The jobs of a namespace.

    Raises:
        CommandError: there is no cluster, or it does not know the resource.
    """
    cluster = Cluster.connect(context=context, namespace=namespace)
    return [Job(each, cluster) for each in cluster.jobs()]


def wait(
    job: str | Job,
    *,
    namespace: str | None = None,
    context: str | None = None,
    timeout_seconds: float | None = None,
    say: Callable[[str], object] = print,
) -> Job:
    """Waits for a job to succeed, and prints a line for each change.

    Args:
        job: Its name, or the job that `submit` returned.
        namespace: Of a name; else that of the context.
        context: Of the kubeconfig; else its current one.
        timeout_seconds: How long to wait; None: no limit.
        say: Called with each line.

    Returns:
        The job, which has succeeded.

    Raises:
        CommandError: it cannot be read.
        JobFailed: it ended with an error, or cannot start until it is edited.
        TimeoutError: it has not ended in time; the job continues.
    """
    found = get(job, namespace=namespace, context=context) if isinstance(job, str) else job
    limit_seconds = math.inf if timeout_seconds is None else timeout_seconds
    ended = Job(watch.follow_change(found.cluster, found.resource, say=say, limit_seconds=limit_seconds), found.cluster)
    if not watch.is_reached(found.resource, ended.status):
        raise TimeoutError(
            f"{ended.name}: has not ended within {timeout_seconds:g} s; it is {ended.phase}, and goes on"
        )
    if ended.phase != Phase.SUCCEEDED:
        raise JobFailed(ended)
    return ended


def logs(
    job: str | Job,
    *,
    namespace: str | None = None,
    context: str | None = None,
    slice_index: int | None = None,
    host: int | None = None,
    tail: int | None = None,
    follow: bool = False,
) -> Iterator[str]:
    """The lines of the hosts' logs, host by host, the first that failed at the front; with `follow`, as they arrive.

    Args:
        job: Its name, or the job.
        namespace: Of a name; else that of the context.
        context: Of the kubeconfig; else its current one.
        slice_index: Only this slice.
        host: Only this host of each slice.
        tail: Last lines of each host; else all.
        follow: Wait for new lines, until all hosts have ended.

    Raises:
        CommandError: there is no such job, or it has no pods now.
    """
    found = get(job, namespace=namespace, context=context) if isinstance(job, str) else job
    return job_logs(found.cluster, found.name, slice_index=slice_index, host=host, tail=tail, is_followed=follow)


def stop(job: str | Job, *, namespace: str | None = None, context: str | None = None) -> Job:
    """Asks a job to save and stop; `resume` continues from its last checkpoint.

    Raises:
        CommandError: there is no such job, or it has ended.
    """
    return _changed(job, namespace, context, changing.stop)


def resume(job: str | Job, *, namespace: str | None = None, context: str | None = None) -> Job:
    """Resumes a stopped job.

    Raises:
        CommandError: there is no such job, or it is not stopped.
    """
    return _changed(job, namespace, context, changing.resume)


def retry(job: str | Job, *, namespace: str | None = None, context: str | None = None) -> Job:
    """Restarts an ended job from its last checkpoint.

    Raises:
        CommandError: there is no such job, or it has not ended.
    """
    return _changed(job, namespace, context, changing.retry)


def _changed(
    job: str | Job, namespace: str | None, context: str | None, change: Callable[[Cluster, str], Object]
) -> Job:
    cluster = Cluster.connect(context=context, namespace=namespace) if isinstance(job, str) else job.cluster
    return Job(change(cluster, job if isinstance(job, str) else job.name), cluster)
