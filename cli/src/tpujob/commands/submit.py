"""`tpujob submit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpujob.commands.options import (
    Commit,
    Context,
    JobFile,
    Namespace,
    Output,
    Settings,
    problems_on_stderr,
    tell_note,
    warn,
)
from tpujob.output import OutputFormat, write

SEEN_SECONDS = 5.0
"""For the operator to write the first status of a job; it takes less than one."""


def submit(
    job_file: JobFile,
    settings: Settings = None,
    namespace: Namespace = None,
    context: Context = None,
    follow: Annotated[bool, typer.Option(help="Follow the job to its end; Ctrl-C leaves it running.")] = True,
    code: Annotated[
        Path | None,
        typer.Option(help="Folder of your code: what git tracks and what you changed goes into the job."),
    ] = None,
    commit: Commit = None,
    code_to: Annotated[
        str | None,
        typer.Option(help="Where archives of code go, gs://BUCKET/PATH or a path; else checkpointDir/code."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Have the server check it, and create nothing.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Create a job on the cluster, after this machine and the API server have checked it, and follow it.

    Exit codes: 0 succeeded (or created, with --no-follow), 1 failed, 78 a wrong field.
    """
    from tpujob.cluster import watch
    from tpujob.cluster.client import Cluster
    from tpujob.cluster.submitting import submit_job
    from tpujob.jobs.job_file import read_manifest
    from tpujob_resource.rules.warnings import submission_warnings

    with problems_on_stderr():
        manifest, job = read_manifest(job_file, settings or ())
        tell_note(job.accelerator)
        warn(submission_warnings(job))
        if commit is not None or code is not None:
            from tpujob.code.attach import attach

            manifest, packed, is_new = attach(manifest, code or Path(), code_to, revision=commit, is_rehearsal=dry_run)
            for line in packed.lines():
                typer.echo(line, err=output is not OutputFormat.TEXT)
            stored = "would be stored as" if dry_run else "stored as" if is_new else "was there already:"
            typer.echo(f"  {stored} {manifest['spec']['code']['archive']}", err=output is not OutputFormat.TEXT)
        cluster = Cluster.connect(context=context, namespace=namespace or manifest["metadata"].get("namespace"))
        created = submit_job(cluster, manifest, dry_run=dry_run)
        name = created["metadata"]["name"]
        if output is not OutputFormat.TEXT:
            write(created, output)
        elif dry_run:
            typer.echo(f"{cluster.namespace}/{name}: the cluster would accept it")
        else:
            typer.echo(f"{cluster.namespace}/{name}: created; `tpujob describe {name}` says how it stands")
        if dry_run:
            return
        try:
            if not watch.is_seen_within(lambda: cluster.job(name), seconds=SEEN_SECONDS):
                question = "does the operator run? `tpujob doctor` says"
                warn([f"no operator has looked at the job within {SEEN_SECONDS:.0f} s: {question}"])
            if not follow or output is not OutputFormat.TEXT:
                return
            for line in watch.follow(lambda: cluster.job(name), until=watch.has_ended):
                typer.echo(line)
        except KeyboardInterrupt:
            typer.echo(f"left running; `tpujob stop {name}` saves and stops it")
            return
        phase = (cluster.job(name).get("status") or {}).get("phase")
    raise typer.Exit(0 if phase == "Succeeded" else 1)
