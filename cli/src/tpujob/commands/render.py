"""`tpujob render`."""

from __future__ import annotations

from tpujob.commands.options import JobFile, Output, problems_on_stderr
from tpujob.output import OutputFormat, write


def render(job_file: JobFile, output: Output = OutputFormat.YAML) -> None:
    """Print the JobSet that the operator would make of a job."""
    from tpujob.job_file import read_job
    from tpujob_operator.jobset.build import materialize
    from tpujob_operator.settings import Settings

    with problems_on_stderr():
        jobset = materialize(read_job(job_file), Settings())
    write(jobset, output)
