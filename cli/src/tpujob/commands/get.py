"""`tpujob get`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from tpujob.commands.options import (
    DEFAULT_RUN_DIRECTORY,
    Context,
    Local,
    Namespace,
    Output,
    RunDirectory,
    problems_on_stderr,
)
from tpujob.output import OutputFormat, write


def get(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A job; by default all of the namespace.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    output: Output = OutputFormat.TEXT,
    local: Local = False,
    directory: RunDirectory = DEFAULT_RUN_DIRECTORY,
) -> None:
    """List jobs: phase, step, loss, checkpoint, restarts."""
    from tpujob.cluster import table
    from tpujob.cluster.client import Cluster

    if local:
        _runs_here(name, namespace, directory, output)
        return
    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        jobs = [cluster.job(name)] if name else cluster.jobs()
    if output is not OutputFormat.TEXT:
        write(jobs[0] if name else jobs, output)
    elif not jobs:
        typer.echo(f"no jobs in namespace {cluster.namespace}")
    else:
        for line in table.render([table.COLUMNS, *table.rows(jobs, datetime.now(UTC))]):
            typer.echo(line)


def _runs_here(name: str | None, namespace: str | None, directory: Path, output: OutputFormat) -> None:
    """Prints the newest run of each job on this machine."""
    from tpujob.cluster import table
    from tpujob.local import runs

    found = [
        (job, run)
        for job, run in runs.newest_of_all(directory)
        if name in (None, job.partition("/")[2]) and namespace in (None, job.partition("/")[0])
    ]
    if output is not OutputFormat.TEXT:
        write([dict(zip(map(str.lower, runs.COLUMNS), runs.row(job, run), strict=True)) for job, run in found], output)
    elif not found:
        typer.echo(f"no runs of this machine in {directory}; see --directory")
    else:
        for line in table.render([runs.COLUMNS, *(runs.row(job, run) for job, run in found)]):
            typer.echo(line)
