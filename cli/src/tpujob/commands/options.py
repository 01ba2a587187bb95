"""Arguments and options that several commands share, and how a command ends with an error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpujob.output.documents import OutputFormat
from tpujob.output.errors import CommandError
from tpujob.output.words import absolute

if TYPE_CHECKING:
    from tpujob_resource.models.job import TpuTrainingJob


def given_file(name: Path) -> Path:
    """The file that is meant: `-` is standard input."""
    return Path("/dev/stdin") if str(name) == "-" else name


JobFile = Annotated[
    Path,
    typer.Argument(
        metavar="JOB.YAML", help="File with one TpuTrainingJob; - reads standard input.", callback=given_file
    ),
]
Output = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="Output format: text, json or yaml.", show_default=False)
]


Directory = Annotated[
    str,
    typer.Argument(
        metavar="DIRECTORY", help="The job's spec.checkpointDir: a path or a gs:// address.", callback=absolute
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Set a field of the job, such as spec.trainer.steps=100; null removes it. Repeatable.",
        show_default=False,
    ),
]
Commit = Annotated[
    str | None,
    typer.Option(
        help="Pack the files of this commit, tag or branch, without uncommitted changes; --code is . by default."
    ),
]
JobName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a TpuTrainingJob on the cluster.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; by default that of the kubeconfig context.")
]
Context = Annotated[
    str | None, typer.Option("--context", help="Context of the kubeconfig; by default the current one.")
]

Local = Annotated[
    bool, typer.Option("--local", help="Use a job that `tpujob run` runs on this machine, not one on a cluster.")
]
RunDirectory = Annotated[Path, typer.Option(help="With --local: the --directory of `tpujob run`.")]
DEFAULT_RUN_DIRECTORY = Path(".tpujob")


@contextmanager
def problems_on_stderr() -> Iterator[None]:
    """Turns a CommandError into its lines on stderr and its exit code."""
    try:
        yield
    except CommandError as error:
        for problem in error.problems:
            typer.echo(problem, err=True)
        raise typer.Exit(error.exit_code) from None


def tell_note(job: TpuTrainingJob) -> None:
    """Prints the note about a job's accelerator to stderr, if its name can be misread."""
    if job.accelerator.note is not None:
        typer.echo(f"note: {job.accelerator.note}", err=True)


def warn(warnings: Iterable[str]) -> None:
    """Prints warnings about valid but probably unintended settings to stderr: stdout is for the result."""
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
