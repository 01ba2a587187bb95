"""`tpujob render`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.commands.options import JobFile, Output, Settings, problems_on_stderr, tell_note, warn
from tpujob.output.documents import OutputFormat, write
from tpujob.output.errors import CommandError

if TYPE_CHECKING:
    from tpujob_resource.models.job import TpuTrainingJob

CUT_NOTE = (
    "note: an address in this job has a query, which may be a signature; it is cut in what is printed here, and this "
    "JobSet would not read what the signature opens. `tpujob submit` and `tpujob run` use the job's whole address"
)


def render(
    job_file: JobFile,
    settings: Settings = None,
    output: Output = OutputFormat.YAML,
    node_pools: Annotated[
        bool,
        typer.Option("--node-pools", help="Print the gcloud commands that create the node pools that the job needs."),
    ] = False,
    delete: Annotated[
        bool, typer.Option("--delete", help="With --node-pools: print the commands that delete them.")
    ] = False,
) -> None:
    """Print the JobSet of a job.

    The same JobSet that the operator creates, except that query strings of signed URLs are removed.
    """
    from tpujob.job.job_file import read_job
    from tpujob_contract.storage_address import redacted_values
    from tpujob_resource.jobset.build import build_jobset
    from tpujob_resource.models.settings import JobSettings
    from tpujob_resource.rules.warnings import job_warnings

    with problems_on_stderr():
        if delete and not node_pools:
            raise CommandError("--delete: is for --node-pools; add it, or use `tpujob stop` to end a job")
        job = read_job(job_file, settings or ())
        if node_pools:
            _write_node_pools(job, output, delete=delete)
            return
        jobset = build_jobset(job, JobSettings())
    tell_note(job)
    warn(job_warnings(job))
    if redacted_values(jobset) != jobset:
        typer.echo(CUT_NOTE, err=True)
    write(jobset, output)


def _write_node_pools(job: TpuTrainingJob, output: OutputFormat, *, delete: bool) -> None:
    from tpujob.cluster.node_pools import creation, deletion, node_pools, shell_lines

    pools = node_pools(job)
    commands = list((deletion if delete else creation)(pools))
    if output is OutputFormat.JSON:
        write([list(command) for command in commands], output)
        return
    each = f"{len(pools.names)} of " if len(pools.names) > 1 else ""
    effect = "The machines go, with what runs on them" if delete else "What they create is billed"
    typer.echo(f"# Node pools: {each}{pools.machines} × {pools.machine_type}. Nothing was run. {effect}.")
    typer.echo("# Set CLUSTER and ZONE; a cluster of a region takes --location=REGION --node-locations=$ZONE.")
    if each:
        typer.echo("# They do not wait: `gcloud container operations list --location=$ZONE` has what is under way.")
    for command in commands:
        typer.echo(shell_lines(command))
