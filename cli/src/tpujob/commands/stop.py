"""`tpujob stop`, `tpujob resume` and `tpujob retry`: one field of the spec each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from tpujob.output.errors import CommandError

if TYPE_CHECKING:
    from tpujob.cluster.client import Cluster, Object

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
    from tpujob_resource.models.phases import Phase

    if local:
        with problems_on_stderr():
            _stop_here(name, directory / (namespace or "default") / name, wait=wait)
    else:
        said = "asked to save and stop"
        _change(changing.stop, name, namespace, context, lambda _: said, until=Phase.SUSPENDED if wait else None)


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
    from tpujob_resource.models.phases import Phase

    _change(changing.resume, name, namespace, context, lambda _: "goes on", until=Phase.RUNNING if wait else None)


def retry(name: JobName, namespace: Namespace = None, context: Context = None, wait: Wait = False) -> None:
    """Restart an ended job from its last checkpoint.

    Raises spec.retry by one.
    """
    from tpujob.cluster import changing
    from tpujob_resource.models.phases import Phase

    def said(job: Object) -> str:
        return f"starts anew from its last checkpoint (spec.retry: {job['spec']['retry']})"

    _change(changing.retry, name, namespace, context, said, until=Phase.RUNNING if wait else None)


def _change(
    change: Callable[[Cluster, str], Object],
    name: str,
    namespace: str | None,
    context: str | None,
    said: Callable[[Object], str],
    *,
    until: str | None,
) -> None:
    """Changes a job, and prints its progress until it is in a phase, or has ended; None: does not wait."""
    from tpujob.cluster import watch
    from tpujob.cluster.client import Cluster

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        changed = change(cluster, name)
        typer.echo(f"{name}: {said(changed)}")
        with contextlib.suppress(KeyboardInterrupt):
            if until is not None:
                watch.follow_change(cluster, changed, say=typer.echo, phases=[until])
