"""`tpujob stop`, `tpujob resume` and `tpujob retry`: one field of the spec each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpujob.commands.options import (
    DEFAULT_RUN_DIRECTORY,
    Context,
    JobName,
    Local,
    Namespace,
    RunDirectory,
    problems_on_stderr,
)
from tpujob.errors import CommandError

if TYPE_CHECKING:
    from tpujob.cluster.client import Cluster

Wait = Annotated[bool, typer.Option(help="Wait until the job has changed; Ctrl-C ends only the waiting.")]


def stop(
    name: JobName,
    namespace: Namespace = None,
    context: Context = None,
    wait: Wait = True,
    local: Local = False,
    directory: RunDirectory = DEFAULT_RUN_DIRECTORY,
) -> None:
    """Save and stop a job, and release its machines.

    `tpujob resume` continues from the last checkpoint. With --local, the same as Ctrl-C in `tpujob run`, which
    continues when run again.
    """
    from tpujob.cluster import changing
    from tpujob.cluster.client import Cluster

    with problems_on_stderr():
        if local:
            _stop_here(name, directory / (namespace or "default") / name, wait=wait)
            return
        cluster = Cluster.connect(context=context, namespace=namespace)
        changed = changing.stop(cluster, name)
        typer.echo(f"{name}: asked to save and stop")
        if wait:
            _wait(cluster, changed, ("Suspended",))


def _stop_here(name: str, root: Path, *, wait: bool) -> None:
    from tpujob.local import runs

    run = runs.newest(root)
    if not run.is_running:
        raise CommandError(f"{name}: has ended; its logs are in {run.directory}", exit_code=1)
    run.interrupt()
    typer.echo(f"{name}: asked to save and stop")
    if wait:
        runs.wait_for_end(run)
        typer.echo(f"{name}: has ended; `tpujob run` goes on from its last checkpoint")


def resume(name: JobName, namespace: Namespace = None, context: Context = None, wait: Wait = False) -> None:
    """Resume a stopped job from its last checkpoint."""
    from tpujob.cluster import changing
    from tpujob.cluster.client import Cluster

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        changed = changing.resume(cluster, name)
        typer.echo(f"{name}: goes on")
        if wait:
            _wait(cluster, changed, ("Running",))


def retry(name: JobName, namespace: Namespace = None, context: Context = None, wait: Wait = False) -> None:
    """Restart an ended job from its last checkpoint.

    Raises spec.retry by one.
    """
    from tpujob.cluster import changing
    from tpujob.cluster.client import Cluster

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        changed = changing.retry(cluster, name)
        typer.echo(f"{name}: starts anew from its last checkpoint (spec.retry: {changed['spec']['retry']})")
        if wait:
            _wait(cluster, changed, ("Running",))


def _wait(cluster: Cluster, changed: Mapping[str, Any], phases: tuple[str, ...]) -> None:
    """Prints the progress of a job until it is in one of the phases, or has ended.

    A status from before the operator saw the change does not count: in it, a retried job is still Failed.
    """
    from tpujob.cluster import watch

    name, generation = changed["metadata"]["name"], changed["metadata"]["generation"]

    def is_reached(status: Mapping[str, Any]) -> bool:
        is_seen = (status.get("observedGeneration") or 0) >= generation
        return is_seen and (status.get("phase") in phases or watch.has_ended(status))

    try:
        for line in watch.follow(lambda: cluster.job(name), until=is_reached):
            typer.echo(line)
    except KeyboardInterrupt:
        return
