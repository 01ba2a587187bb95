"""`tpujob logs`."""

from collections.abc import Mapping
from typing import Annotated, Any

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


def logs(
    name: JobName,
    namespace: Namespace = None,
    context: Context = None,
    slice_index: Annotated[int | None, typer.Option("--slice", help="Only this slice.", min=0)] = None,
    host: Annotated[int | None, typer.Option("--host", help="Only this host of each slice.", min=0)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines as they arrive.")] = False,
    merged: Annotated[
        bool, typer.Option("--merged", help="Sort the lines of all hosts by time, instead of host by host.")
    ] = False,
    tail: Annotated[int | None, typer.Option(help="Number of last lines of each host; by default all.", min=1)] = None,
    attempts: Annotated[
        bool,
        typer.Option("--attempts", help="Print how each attempt ended, from spec.checkpointDir; works without pods."),
    ] = False,
    local: Local = False,
    directory: RunDirectory = DEFAULT_RUN_DIRECTORY,
) -> None:
    """Print the logs of hosts, first failure first."""
    from tpujob.cluster.client import Cluster
    from tpujob.cluster.logs import job_logs

    with problems_on_stderr():
        if local:
            from tpujob.local import runs

            if merged or attempts or slice_index is not None:
                raise CommandError("--local: --merged, --attempts and --slice go with a job on a cluster")

            run = runs.newest(directory / (namespace or "default") / name)
            for line in run.lines(host=host, tail=tail, follow=follow):
                typer.echo(line)
            return
        cluster = Cluster.connect(context=context, namespace=namespace)
        if attempts:
            _attempts(cluster.job(name))
            return
        for line in job_logs(
            cluster, name, slice_index=slice_index, host=host, tail=tail, is_followed=follow, is_merged=merged
        ):
            typer.echo(line)


def _attempts(job: Mapping[str, Any]) -> None:
    """Prints how the attempts of a job ended."""
    from tpujob.job.questions.checkpoints import attempt_lines
    from tpujob.job.questions.trainer_program import Program, ask
    from tpujob_contract.reports.report import ATTEMPTS

    directory = job["spec"].get("checkpointDir")
    if directory is None:
        raise CommandError("spec.checkpointDir: the job has none, so its attempts have left nothing", exit_code=1)
    for line in attempt_lines(ask(Program.CHECKPOINTS, directory, ATTEMPTS)):
        typer.echo(line)
