"""`tpujob submit`."""

from __future__ import annotations

from typing import Annotated

import typer

from tpujob.commands.options import Context, JobFile, Namespace, Output, problems_on_stderr
from tpujob.output import OutputFormat, write


def submit(
    job_file: JobFile,
    namespace: Namespace = None,
    context: Context = None,
    follow: Annotated[bool, typer.Option(help="Follow the job to its end; Ctrl-C leaves it running.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Have the server check it, and create nothing.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Create a job on the cluster, after this machine and the API server have checked it, and follow it.

    Exit codes: 0 succeeded (or created, with --no-follow), 1 failed, 78 a wrong field.
    """
    from tpujob.cluster import watch
    from tpujob.cluster.client import Cluster
    from tpujob.cluster.submitting import submit_job
    from tpujob.job_file import read_manifest

    with problems_on_stderr():
        manifest = read_manifest(job_file)
        cluster = Cluster.connect(context=context, namespace=namespace or manifest["metadata"].get("namespace"))
        job = submit_job(cluster, manifest, dry_run=dry_run)
        name = job["metadata"]["name"]
        if output is not OutputFormat.TEXT:
            write(job, output)
        elif dry_run:
            typer.echo(f"{cluster.namespace}/{name}: the cluster would accept it")
        else:
            typer.echo(f"{cluster.namespace}/{name}: created; `tpujob describe {name}` says how it stands")
        if dry_run or not follow or output is not OutputFormat.TEXT:
            return
        try:
            for line in watch.follow(lambda: cluster.job(name), until=watch.has_ended):
                typer.echo(line)
        except KeyboardInterrupt:
            typer.echo(f"left running; `tpujob stop {name}` saves and stops it")
            return
        phase = (cluster.job(name).get("status") or {}).get("phase")
    raise typer.Exit(0 if phase == "Succeeded" else 1)
