"""`tpujob stop`, `tpujob resume` and `tpujob retry`: one field of the spec each."""

from __future__ import annotations

from typing import Annotated

import typer

from tpujob.commands.options import Context, JobName, Namespace, problems_on_stderr
from tpujob.errors import CommandError

ENDED = ("Succeeded", "Failed")

Wait = Annotated[bool, typer.Option(help="Wait until it is so; Ctrl-C ends the waiting only.")]


def stop(name: JobName, namespace: Namespace = None, context: Context = None, wait: Wait = True) -> None:
    """Save and stop a job; its machines are given back, and `resume` goes on from the last checkpoint."""
    from tpujob.cluster.client import Cluster

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        _require_unfinished(cluster.job(name), "stop")
        cluster.patch(cluster.job_path(name), {"spec": {"suspend": True}})
        typer.echo(f"{name}: asked to save and stop")
        if wait:
            _wait(cluster, name, ("Suspended",))


def resume(name: JobName, namespace: Namespace = None, context: Context = None, wait: Wait = False) -> None:
    """Let a stopped job go on from its last checkpoint."""
    from tpujob.cluster.client import Cluster

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        job = cluster.job(name)
        _require_unfinished(job, "resume")
        if not job["spec"].get("suspend"):
            raise CommandError(f"{name}: is not stopped; `tpujob describe {name}` says how it stands")
        cluster.patch(cluster.job_path(name), {"spec": {"suspend": False}})
        typer.echo(f"{name}: goes on")
        if wait:
            _wait(cluster, name, ("Running",))


def retry(name: JobName, namespace: Namespace = None, context: Context = None, wait: Wait = False) -> None:
    """Start a job that has ended anew, from its last checkpoint: raises spec.retry by one."""
    from tpujob.cluster.client import Cluster

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        job = cluster.job(name)
        phase = (job.get("status") or {}).get("phase")
        if phase not in ENDED:
            raise CommandError(
                f"{name}: has not ended (it is {phase or 'not seen by the operator yet'}); nothing to retry"
            )
        number = (job["spec"].get("retry") or 0) + 1
        cluster.patch(cluster.job_path(name), {"spec": {"retry": number}})
        typer.echo(f"{name}: starts anew from its last checkpoint (spec.retry: {number})")
        if wait:
            _wait(cluster, name, ("Running",))


def _require_unfinished(job: dict[str, object], verb: str) -> None:
    status = job.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    if phase in ENDED:
        raise CommandError(f"cannot {verb}: the job has ended as {phase}; `tpujob retry` starts it anew")


def _wait(cluster: object, name: str, phases: tuple[str, ...]) -> None:
    from tpujob.cluster import watch
    from tpujob.cluster.client import Cluster

    assert isinstance(cluster, Cluster)
    try:
        for line in watch.follow(
            lambda: cluster.job(name), until=lambda status: status.get("phase") in phases or watch.has_ended(status)
        ):
            typer.echo(line)
    except KeyboardInterrupt:
        return
