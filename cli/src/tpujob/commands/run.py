"""`tpujob run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.commands.options import Commit, Output, Settings
from tpujob.errors import CommandError
from tpujob.output import OutputFormat, write

if TYPE_CHECKING:
    from tpujob_resource.models.job import TpuTrainingJob


def run(
    job_file: Annotated[
        Path, typer.Argument(metavar="JOB.YAML|PROGRAM.PY", help="File with one TpuTrainingJob, or a Python program.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENT...]", help="Arguments of a program.", show_default=False)
    ] = None,
    accelerator: Annotated[
        str | None, typer.Option(help="For a program: cpu:HOSTSxDEVICES, or a TPU type to rehearse. [cpu:1x1]")
    ] = None,
    settings: Settings = None,
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
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also show what the launcher and JAX's network library print.")
    ] = False,
) -> None:
    """Run a job or a program on this machine.

    Runs its JobSet, with a process for every pod. A command needs no image here: this machine's Python runs it.

    TPU accelerators are rehearsed with as many hosts and as many CPU devices each. Ctrl-C saves and stops; run it
    again and it goes on. Exit codes: 0 finished, 75 stopped, 76 diverged, 77 something is not there, 78 a wrong field.
    With -o json, stdout ends with one object in every case: phase, exit_code, message and the last report.
    """
    from tpujob.jobs.program import command_line
    from tpujob.local.run import refusal, run_job

    output = OutputFormat.JSON if json_output else output
    is_text = output is OutputFormat.TEXT
    try:
        exit_code, summary = run_job(
            _job(job_file, arguments or [], accelerator, settings or []),
            again=command_line(job_file, arguments or [], accelerator, settings or []),
            directory=directory,
            text_to_stderr=not is_text,
            max_processes=max_processes,
            code=code or (Path() if commit is not None else None),
            commit=commit,
            verbose=verbose,
        )
    except CommandError as error:
        for problem in error.problems:
            typer.echo(problem, err=True)
        exit_code, summary = error.exit_code, refusal(error)
    if not is_text:
        write(summary, output)
    raise typer.Exit(exit_code)


def _job(file: Path, arguments: list[str], accelerator: str | None, settings: list[str]) -> TpuTrainingJob:
    """The job in a file, or that of a program."""
    from tpujob.jobs.job_file import load_document, read_local_job
    from tpujob.jobs.program import is_program, job_of
    from tpujob.jobs.set_fields import with_fields

    if is_program(file):
        return load_document(with_fields(job_of(file, arguments, accelerator), settings), file)
    for option, value in (("--accelerator", accelerator), ("arguments", " ".join(arguments))):
        if value:
            raise CommandError(f"{option}: {value} goes with a program; {file} is a job, which has its own in spec")
    return read_local_job(file, settings)
