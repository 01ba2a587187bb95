"""`tpujob submit`."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
from tpujob.output.documents import OutputFormat, show

if TYPE_CHECKING:
    from tpujob.cluster.client import Cluster, Object

Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="If a job of this name exists, give it this spec; if necessary, it is saved and stopped first, "
        "then resumed.",
    ),
]
SEEN_SECONDS = 5.0
"""Time for the operator to write the first status of a job; it takes less than one second."""


def submit(
    job_file: JobFile,
    settings: Settings = None,
    namespace: Namespace = None,
    context: Context = None,
    follow: Annotated[bool, typer.Option(help="Follow the job to its end; Ctrl-C leaves it running.")] = True,
    code: Annotated[
        Path | None,
        typer.Option(help="Folder of your code: the files that git tracks, with your changes, go into the job."),
    ] = None,
    commit: Commit = None,
    code_to: Annotated[
        str | None,
        typer.Option(help="Where to store code archives: gs://BUCKET/PATH or a path; by default checkpointDir/code."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Have the API server validate the job, and create nothing.")
    ] = False,
    replace: Replace = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Create a job on the cluster, and follow it.

    This machine and the API server check it first. Exit codes: 0 succeeded (or created, with --no-follow), 1 failed, 78
    a wrong field.
    """
    from tpujob.cluster.client import Cluster
    from tpujob.cluster.replacing import submit_job
    from tpujob.job.job_file import read_manifest
    from tpujob_resource.models.phases import Phase
    from tpujob_resource.rules.warnings import submission_warnings

    with problems_on_stderr():
        manifest, job = read_manifest(job_file, settings or ())
        tell_note(job)
        warn(submission_warnings(job))
        say = functools.partial(typer.echo, err=output is not OutputFormat.TEXT)
        if commit is not None or code is not None:
            manifest = _with_code(manifest, code or Path(), code_to, commit, is_rehearsal=dry_run, say=say)
        cluster = Cluster.connect(context=context, namespace=namespace or manifest["metadata"].get("namespace"))
        created, lines = submit_job(cluster, manifest, dry_run=dry_run, replace=replace, say=say)
        show(created, output, lines)
        ended = None if dry_run else _follow(cluster, created, is_wanted=follow and output is OutputFormat.TEXT)
    if ended is not None:
        raise typer.Exit(0 if (ended.get("status") or {}).get("phase") == Phase.SUCCEEDED else 1)


def _with_code(
    manifest: dict[str, Any],
    folder: Path,
    code_to: str | None,
    commit: str | None,
    *,
    is_rehearsal: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Adds the code of a folder to the manifest; prints the packed files and the archive's address."""
    from tpujob.job.code.job_code import attach

    with_code, packed, is_new = attach(manifest, folder, code_to, revision=commit, is_rehearsal=is_rehearsal)
    for line in packed.lines():
        say(line)
    stored = "would be stored as" if is_rehearsal else "stored as" if is_new else "was there already:"
    say(f"  {stored} {with_code['spec']['code']['archive']}")
    return with_code


def _follow(cluster: Cluster, job: Object, *, is_wanted: bool) -> Object | None:
    """Prints the progress of a job that was just written; returns it as it ended; None: nobody followed it so far."""
    from tpujob.cluster import watch

    name = job["metadata"]["name"]
    try:
        if not watch.is_seen_within(lambda: cluster.job(name), seconds=SEEN_SECONDS):
            question = "does the operator run? `tpujob doctor` says"
            warn([f"no operator has looked at the job within {SEEN_SECONDS:.0f} s: {question}"])
        return watch.follow_change(cluster, job, say=typer.echo) if is_wanted else None
    except KeyboardInterrupt:
        typer.echo(f"left running; `tpujob stop {name}` saves and stops it")
        return None
