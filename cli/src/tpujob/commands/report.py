"""`tpujob report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpujob.commands.options import Output, problems_on_stderr
from tpujob.output import OutputFormat, write
from tpujob.output.words import absolute


def report(
    directories: Annotated[
        list[str],
        typer.Argument(
            metavar="DIRECTORY…",
            help="spec.checkpointDir of each run: a path or a gs:// address.",
            callback=lambda names: [absolute(name) for name in names],
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write; one that is there is replaced.")] = Path("report.html"),
    output: Output = OutputFormat.TEXT,
) -> None:
    """Draw one or several runs into one HTML file.

    Loss by step, tokens and time, speed, restarts, checkpoints, samples. Several runs are laid over one another. The
    file runs no script and loads nothing.
    """
    from tpujob.questions.checkpoints import report_lines, write_report

    with problems_on_stderr():
        found = write_report(directories, out)
    if output is not OutputFormat.TEXT:
        write(found, output)
        return
    for line in report_lines(found):
        typer.echo(line)
