"""`tpujob get` and `tpujob describe`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.commands.options import (
    DEFAULT_RUN_DIRECTORY,
    Context,
    JobName,
    Local,
    Namespace,
    Output,
    RunDirectory,
    problems_on_stderr,
)
from tpujob.output.documents import OutputFormat, show

if TYPE_CHECKING:
    from tpujob.cluster.client import Object


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
    from tpujob.cluster.client import Cluster

    if local:
        _runs_here(name, namespace, directory, output)
        return
    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        jobs = [cluster.job(name)] if name else cluster.jobs()
    show(jobs[0] if name else jobs, output, _lines(jobs, cluster.namespace))


def _lines(jobs: Sequence[Object], namespace: str) -> Iterator[str]:
    from tpujob.cluster import table

    if jobs:
        yield from table.render([table.COLUMNS, *table.rows(jobs, datetime.now(UTC))])
    else:
        yield f"no jobs in namespace {namespace}"


def _runs_here(name: str | None, namespace: str | None, directory: Path, output: OutputFormat) -> None:
    """Prints the newest run of each job on this machine."""
    from tpujob.cluster import table
    from tpujob.local import runs

    found = [
        (job, run)
        for job, run in runs.newest_of_all(directory)
        if name in (None, job.partition("/")[2]) and namespace in (None, job.partition("/")[0])
    ]
    rows = [runs.row(job, run) for job, run in found]
    lines = table.render([runs.COLUMNS, *rows])
    show(
        [dict(zip(map(str.lower, runs.COLUMNS), row, strict=True)) for row in rows],
        output,
        lines if found else [f"no runs of this machine in {directory}; see --directory"],
    )


FORBIDDEN = 403


def describe(
    name: JobName, namespace: Namespace = None, context: Context = None, output: Output = OutputFormat.TEXT
) -> None:
    """Explain a job's state, its history and what to do.

    As JSON or YAML: the job, its pods, the warnings about them, and the sentences.
    """
    from tpujob.cluster.client import ApiError, Cluster
    from tpujob.cluster.describe import describe as sentences

    with problems_on_stderr():
        cluster = Cluster.connect(context=context, namespace=namespace)
        job = cluster.job(name)
        pods = cluster.pods(job)
        path = f"/api/v1/namespaces/{cluster.namespace}/events?fieldSelector=type=Warning"
        related = {name, *(pod["metadata"]["name"] for pod in pods), (job.get("status") or {}).get("jobSet")}
        refused = ""
        try:
            events = [event for event in cluster.items(path) if event["involvedObject"].get("name") in related]
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            events, refused = [], f"  warnings: not shown; your account may not list Events in {cluster.namespace}"
    lines = list(sentences(job, pods, events, datetime.now(UTC)))
    lines[1:1] = [refused] if refused else []
    show({"job": job, "pods": pods, "warnings": events, "sentences": lines}, output, lines)
