"""The commands. Each parses, calls one function and says what came of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tpujob.errors import CommandError

app = typer.Typer(
    name="tpujob",
    help="Train on Cloud TPUs with Kubernetes: run a job here, see what would run there, make data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(help="Make and look at data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

JobFile = Annotated[Path, typer.Argument(metavar="JOB.YAML", help="File with one TpuTrainingJob.")]


@app.command()
def run(
    job_file: JobFile,
    json_output: Annotated[bool, typer.Option("--json", help="Make the last line of stdout one JSON object.")] = False,
    directory: Annotated[
        Path, typer.Option(help="Where logs go, and checkpoints unless the job names a place.")
    ] = Path(".tpujob"),
    max_processes: Annotated[int, typer.Option(help="Refuse jobs of more processes than this.", min=1)] = 16,
) -> None:
    """Run a job on this machine: its JobSet, with a process for every pod.

    TPU accelerators are rehearsed with as many hosts and as many CPU devices each. Ctrl-C saves and stops; run it
    again and it goes on. Exit codes: 0 finished, 75 stopped, 76 diverged, 77 something is not there, 78 a wrong field.
    """
    from tpujob.local.run import run_job

    with _problems_on_stderr():
        code = run_job(job_file, directory=directory, json_output=json_output, max_processes=max_processes)
    raise typer.Exit(code)


@app.command()
def render(job_file: JobFile) -> None:
    """Print the JobSet that the operator would make of a job."""
    from ruamel.yaml import YAML

    from tpujob.job_file import read_job
    from tpujob_operator.jobset.build import materialize
    from tpujob_operator.settings import Settings

    with _problems_on_stderr():
        jobset = materialize(read_job(job_file), Settings())
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 120
    yaml.dump(jobset, sys.stdout)


@data_app.command("from-folder")
def data_from_folder(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with text files, walked to the bottom.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to make, with parquet files in it.")],
    include: Annotated[list[str] | None, typer.Option(help="Pattern of names or paths to take, e.g. '*.py'.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Pattern of names or paths to leave out.")] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Do nothing if OUT is there already.")] = False,
) -> None:
    """Make a parquet data set of the text files below a folder: a row for each, with columns `text` and `path`.

    Then put `data: {path: OUT/*.parquet}` into a job.
    """
    from tpujob.folder import folder_to_parquet

    if if_missing and out.is_dir():
        return
    with _problems_on_stderr():
        made = folder_to_parquet(folder, out, include=tuple(include or ["*"]), exclude=tuple(exclude or []))
    left_out = "".join(f", {count} left out ({why})" for why, count in sorted(made.skipped.items()))
    typer.echo(f"{out}: {made.rows:,} texts, {made.text_bytes / 1e6:.1f} MB, in {made.files} parquet files{left_out}")


@app.command()
def bundle(
    out: Annotated[Path | None, typer.Option(help="Folder to make, or to go on with.")] = None,
    verify: Annotated[Path | None, typer.Option(metavar="BUNDLE", help="Check a bundle instead of making one.")] = None,
    source: Annotated[Path | None, typer.Option(help="Checkout of tpujob; else the one this runs from.")] = None,
    python: Annotated[list[str] | None, typer.Option(help="Python for which there are wheels. [3.12]")] = None,
    wheels: Annotated[list[Path] | None, typer.Option(help="Folder with wheels, e.g. of an older bundle.")] = None,
    base_image: Annotated[str | None, typer.Option(help="Base to build on there; else the Dockerfile's.")] = None,
    image: Annotated[list[str] | None, typer.Option(help="One more image of docker, podman or buildah here.")] = None,
    images: Annotated[list[Path] | None, typer.Option(help="Image archive to take instead of those here.")] = None,
    no_images: Annotated[bool, typer.Option("--no-images", help="Leave images out.")] = False,
) -> None:
    """Put everything that a site without a network needs into one folder: images, wheels, chart, Dockerfile, checksums.

    Needs a checkout, and docker, podman or buildah with the images built. Interrupted, it goes on when run again. The
    folder's README.md has the commands that load, install and build.
    """
    from tpujob.bundle.checksums import verify as problems_of
    from tpujob.bundle.making import Wish, make_bundle

    with _problems_on_stderr():
        if (out is None) == (verify is None):
            raise CommandError("name a folder to make with --out, or a bundle to check with --verify")
        if verify is not None:
            problems = problems_of(verify)
            if problems:
                raise CommandError(*problems, exit_code=1)
            typer.echo(f"{verify}: every file is as it should be")
            return
        assert out is not None
        wish = Wish(
            out=out,
            source=source,
            pythons=tuple(python or ["3.12"]),
            wheels=tuple(wheels or []),
            base_image=base_image,
            more_images=tuple(image or []),
            archives=tuple(images or []),
            with_images=not no_images,
        )
        make_bundle(wish, typer.echo)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    typer.echo(f"{out}: {size / 1e9:.1f} GB; {out / 'README.md'} says what to do with it")


@data_app.command("inspect")
def data_inspect(
    name: Annotated[str, typer.Argument(metavar="PATH|NAME", help="File, folder, pattern or URL; or a hub data set.")],
    tokenizer: Annotated[str, typer.Option(help="bytes, or a tokenizer.json, its folder or URL.")] = "bytes",
    batch_size: Annotated[int, typer.Option(help="Rows of a global batch.", min=1)] = 8,
    sequence_length: Annotated[int, typer.Option(help="Tokens of a row.", min=2)] = 2048,
    text_column: Annotated[str, typer.Option(help="Column or key of the text.")] = "text",
    seed: Annotated[int, typer.Option(help="Of the order, as in the job.", min=0)] = 0,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object, with all tokens.")] = False,
) -> None:
    """Show what is in a data set, what would make it slow, some rows, and the first global batch of a run.

    The batch is the one that a job with these settings begins with, on any number of hosts.
    """
    import json

    from tpujob.data_inspect import describe, inspect_data, source_of

    data = {**source_of(name), "tokenizer": tokenizer, "textColumn": text_column}
    with _problems_on_stderr():
        found = inspect_data(data, batch_size=batch_size, sequence_length=sequence_length, seed=seed)
    if json_output:
        typer.echo(json.dumps(found))
        return
    for line in describe(found, batch_size=batch_size, sequence_length=sequence_length):
        typer.echo(line)


class _problems_on_stderr:  # noqa: N801 - reads as a phrase
    """Turns a CommandError into its lines on stderr and its exit code."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, CommandError):
            for problem in error.problems:
                typer.echo(problem, err=True)
            raise typer.Exit(error.exit_code) from None
