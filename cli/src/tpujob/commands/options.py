"""Arguments and options that several verbs share, and how a verb ends with an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tpujob.errors import CommandError
from tpujob.output import OutputFormat

JobFile = Annotated[Path, typer.Argument(metavar="JOB.YAML", help="File with one TpuTrainingJob.")]
Output = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="text for people, json or yaml for programs.", show_default=False)
]

JobName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a TpuTrainingJob on the cluster.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; else that of the kubeconfig's context.")
]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig; else its current one.")]


@contextmanager
def problems_on_stderr() -> Iterator[None]:
    """Turns a CommandError into its lines on stderr and its exit code."""
    try:
        yield
    except CommandError as error:
        for problem in error.problems:
            typer.echo(problem, err=True)
        raise typer.Exit(error.exit_code) from None
