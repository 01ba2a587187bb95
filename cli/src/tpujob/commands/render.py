"""`tpujob render`."""

from __future__ import annotations

from tpujob.commands.options import JobFile, Output, problems_on_stderr, tell_note, warn
from tpujob.output import OutputFormat, write


def render(job_file: JobFile, output: Output = OutputFormat.YAML) -> None:
    """Print the JobSet that the operator would make of a job."""
    from tpujob.jobs.job_file import read_job
    from tpujob_resource.jobset.build import build_jobset
    from tpujob_resource.models.settings import JobSettings
    from tpujob_resource.rules.warnings import job_warnings

    with problems_on_stderr():
        job = read_job(job_file)
        jobset = build_jobset(job, JobSettings())
    tell_note(job.accelerator)
    warn(job_warnings(job))
    write(jobset, output)
