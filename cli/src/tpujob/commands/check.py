"""`tpujob check`."""

from __future__ import annotations

import typer

from tpujob.commands.options import JobFile, Output, problems_on_stderr
from tpujob.output import OutputFormat, write


def check(job_file: JobFile, output: Output = OutputFormat.TEXT) -> None:
    """Say what a job asks for and comes to: hosts, parameters, steps, memory, hours, chip-hours, and what is doubtful.

    By arithmetic, in a moment, without a device. Hours are for 30 to 50 % of the chips' peak.
    """
    from tpujob.check import check_job, describe
    from tpujob.job_file import read_job

    with problems_on_stderr():
        facts = check_job(read_job(job_file))
    if output is not OutputFormat.TEXT:
        write(facts, output)
        return
    for line in describe(facts):
        typer.echo(line)
