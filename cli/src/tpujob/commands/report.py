"""`tpujob report`."""

from pathlib import Path
from typing import Annotated

import typer

from tpujob.commands.options import Output, problems_on_stderr
from tpujob.output.documents import OutputFormat, show
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
    out: Annotated[Path, typer.Option(help="File to write; an existing file is replaced.")] = Path("report.html"),
    output: Output = OutputFormat.TEXT,
) -> None:
    """Plot one or more runs in an HTML file.

    Loss by step, tokens and time, speed, restarts, checkpoints, samples. Several runs share each plot. The file has no
    scripts and loads nothing.
    """
    from tpujob.job.questions.checkpoints import report_lines
    from tpujob.job.questions.trainer_program import Program, ask

    with problems_on_stderr():
        found = ask(Program.RUN_REPORT, {"directories": directories, "out": str(out)})
    show(found, output, report_lines(found))
