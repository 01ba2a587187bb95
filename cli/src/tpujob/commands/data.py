"""`tpujob data`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tpujob.commands.options import Output, Settings, problems_on_stderr
from tpujob.output.documents import OutputFormat, show, write

app = typer.Typer(help="Make and inspect data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command("from-folder")
def from_folder(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder with text files, searched recursively.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to create, with parquet files in it.")],
    include: Annotated[
        list[str] | None, typer.Option(help="Pattern of names or paths to include, such as '*.py'.")
    ] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="Pattern of names or paths to exclude.")] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="Do nothing if OUT exists.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Make a parquet data set of a folder's text files.

    One row for each file, with columns `text` and `path`. Then put `data: {path: OUT/*.parquet}` into a job.
    """
    from tpujob.commands.from_folder import folder_to_parquet

    if if_missing and out.is_dir():
        return
    with problems_on_stderr():
        made = folder_to_parquet(folder, out, include=tuple(include or ["*"]), exclude=tuple(exclude or []))
    if output is not OutputFormat.TEXT:
        write({"directory": str(out), **asdict(made)}, output)
        return
    texts = f"{made.rows:,} text{'s' if made.rows != 1 else ''}"
    files = f"{made.files} parquet file{'s' if made.files != 1 else ''}"
    typer.echo(f"{out}: {texts}, {made.text_bytes / 1e6:.1f} MB, in {files}")
    for why, count in sorted(made.skipped.items()):
        more = f" and {count - len(made.first_skipped[why])} more" if count > len(made.first_skipped[why]) else ""
        typer.echo(f"left out: {count} ({why}): {', '.join(made.first_skipped[why])}{more}")


@app.command("inspect")
def inspect(
    name: Annotated[
        str,
        typer.Argument(
            metavar="PATH|NAME|JOB.YAML", help="File, folder, pattern or URL; a hub data set; or the data of a job."
        ),
    ],
    tokenizer: Annotated[str, typer.Option(help="bytes, or a tokenizer.json, its folder or URL.")] = "bytes",
    batch_size: Annotated[int, typer.Option(help="Rows of a global batch.", min=1)] = 8,
    sequence_length: Annotated[int, typer.Option(help="Tokens of a row.", min=2)] = 2048,
    text_column: Annotated[str, typer.Option(help="Column or key of the text.")] = "text",
    seed: Annotated[int, typer.Option(help="Seed of the shuffled order, as in the job.", min=0)] = 0,
    settings: Settings = None,
    processes: Annotated[
        int | None,
        typer.Option(
            help="Also show what each of this many processes reads first; by default the job's number.", min=1
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show a data set, some rows and a run's first batch.

    Also warns of what would make reading slow. The batch is the first of a job with these settings, whatever its number
    of hosts. For a job, rows are shown after its template or messages are applied, and its batchSize, sequenceLength
    and seed replace the options. JSON and YAML have all tokens of the batch.
    """
    from tpujob.job.questions.data import InspectionRequest, describe, inspect_data, of_job
    from tpujob.job.template import source_of
    from tpujob.output.errors import CommandError

    with problems_on_stderr():
        data = {**source_of(name), "tokenizer": tokenizer, "textColumn": text_column}
        asked = InspectionRequest(data, batch_size, sequence_length, seed, processes or 1)
        if name.endswith((".yaml", ".yml")):
            asked = of_job(Path(name), asked, processes, settings or ())
        elif settings:
            raise CommandError(f"--set: {settings[0]} is for a job; {name} is data")
        found = inspect_data(asked)
    lines = describe(found, batch_size=asked.batch_size, sequence_length=asked.sequence_length)
    show(found, OutputFormat.JSON if json_output else output, lines)
