"""`tpujob submit`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from tpujob.cluster.client import Cluster

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
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Give a job that is there this spec: save and stop it if it must be, change it, and let it go on.",
        ),
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Create a job on the cluster, after this machine and the API server have checked it, and follow it.

    Exit codes: 0 succeeded (or created, with --no-follow), 1 failed, 78 a wrong field.
    """
    from tpujob.cluster.client import Cluster
    from tpujob.cluster.replacing import replace_job
    from tpujob.cluster.submitting import require_one_namespace, submit_job
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
        if replace:
            require_one_namespace(cluster, manifest)
            replacement = replace_job(
                cluster,
                manifest,
                dry_run=dry_run,
                say=functools.partial(typer.echo, err=output is not OutputFormat.TEXT),
            )
            created, lines = replacement.job, replacement.lines(is_rehearsal=dry_run)
        else:
            created = submit_job(cluster, manifest, dry_run=dry_run)
            lines = iter([_submitted(cluster.namespace, created, is_rehearsal=dry_run)])
        name = created["metadata"]["name"]
        if output is not OutputFormat.TEXT:
            write(created, output)
        else:
            for line in lines:
                typer.echo(line)
        if dry_run:
            return
        if not _follow(cluster, created, is_wanted=follow and output is OutputFormat.TEXT):
            return
        phase = (cluster.job(name).get("status") or {}).get("phase")
    raise typer.Exit(0 if phase == "Succeeded" else 1)


def _follow(cluster: Cluster, job: Mapping[str, Any], *, is_wanted: bool) -> bool:
    """Tells what becomes of a job that was written a moment ago; whether to its end."""
    from tpujob.cluster import watch

    name = job["metadata"]["name"]
    try:
        if not watch.is_seen_within(lambda: cluster.job(name), seconds=SEEN_SECONDS):
            question = "does the operator run? `tpujob doctor` says"
            warn([f"no operator has looked at the job within {SEEN_SECONDS:.0f} s: {question}"])
        if not is_wanted:
            return False
        until = watch.has_ended_since(job["metadata"].get("generation") or 0)
        for line in watch.follow(lambda: cluster.job(name), until=until):
            typer.echo(line)
    except KeyboardInterrupt:
        typer.echo(f"left running; `tpujob stop {name}` saves and stops it")
        return False
    return True


def _submitted(namespace: str, created: Mapping[str, Any], *, is_rehearsal: bool) -> str:
    name = created["metadata"]["name"]
    if is_rehearsal:
        return f"{namespace}/{name}: the cluster would accept it"
    return f"{namespace}/{name}: created; `tpujob describe {name}` says how it stands"
