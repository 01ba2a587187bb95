"""`tpujob run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpujob.commands.options import Commit, JobFile, Output
from tpujob.errors import CommandError
from tpujob.output import OutputFormat, write


def run(
    job_file: JobFile,
    output: Output = OutputFormat.TEXT,
    json_output: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    directory: Annotated[
        Path, typer.Option(help="Where logs go, and checkpoints unless the job names a place.")
    ] = Path(".tpujob"),
    code: Annotated[
        Path | None, typer.Option(help="Folder of your code: packed, unpacked and put on PYTHONPATH as in pods.")
    ] = None,
    commit: Commit = None,
    max_processes: Annotated[int, typer.Option(help="Refuse jobs of more processes than this.", min=1)] = 16,
) -> None:
    """Run a job on this machine: its JobSet, with a process for every pod.

    TPU accelerators are rehearsed with as many hosts and as many CPU devices each. Ctrl-C saves and stops; run it
    again and it goes on. Exit codes: 0 finished, 75 stopped, 76 diverged, 77 something is not there, 78 a wrong field.
    With -o json, stdout ends with one object in every case: phase, exit_code, message and the last report.
    """
    from tpujob.local.run import refusal, run_job

    output = OutputFormat.JSON if json_output else output
    is_text = output is OutputFormat.TEXT
    try:
        exit_code, summary = run_job(
            job_file,
            directory=directory,
            text_to_stderr=not is_text,
            max_processes=max_processes,
            code=code or (Path() if commit is not None else None),
            commit=commit,
        )
    except CommandError as error:
        for problem in error.problems:
            typer.echo(problem, err=True)
        exit_code, summary = error.exit_code, refusal(error)
    if not is_text:
        write(summary, output)
    raise typer.Exit(exit_code)
