"""`tpujob render`."""

from __future__ import annotations

import typer

from tpujob.commands.options import JobFile, Output, Settings, problems_on_stderr, tell_note, warn
from tpujob.output import OutputFormat, write

CUT_NOTE = (
    "note: an address in this job has a query, which may be a signature; it is cut in what is printed here, and this "
    "JobSet would not read what the signature opens. `tpujob submit` and `tpujob run` use the job's whole address"
)


def render(job_file: JobFile, settings: Settings = None, output: Output = OutputFormat.YAML) -> None:
    """Print the JobSet that the operator would make of a job, without the queries of signed addresses."""
    from tpujob.jobs.job_file import read_job
    from tpujob_contract.storage_address import redacted_values
    from tpujob_resource.jobset.build import build_jobset
    from tpujob_resource.models.settings import JobSettings
    from tpujob_resource.rules.warnings import job_warnings

    with problems_on_stderr():
        job = read_job(job_file, settings or ())
        jobset = build_jobset(job, JobSettings())
    tell_note(job.accelerator)
    warn(job_warnings(job))
    if redacted_values(jobset) != jobset:
        typer.echo(CUT_NOTE, err=True)
    write(jobset, output)
