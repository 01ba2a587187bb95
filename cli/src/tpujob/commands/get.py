"""`tpujob get`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from tpujob.commands.options import Context, Namespace, Output, problems_on_stderr
from tpujob.output import OutputFormat, write


def get(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One job; else all of the namespace.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """List jobs: phase, step, loss, checkpoint, restarts."""
    from tpujob.cluster import table
    from tpujob.cluster.client import Cluster

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
