"""`tpujob data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tpujob.commands.options import problems_on_stderr

app = typer.Typer(help="Make and look at data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.command("from-folder")
def from_folder(
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
    with problems_on_stderr():
        made = folder_to_parquet(folder, out, include=tuple(include or ["*"]), exclude=tuple(exclude or []))
    left_out = "".join(f", {count} left out ({why})" for why, count in sorted(made.skipped.items()))
    typer.echo(f"{out}: {made.rows:,} texts, {made.text_bytes / 1e6:.1f} MB, in {made.files} parquet files{left_out}")


@app.command("inspect")
def inspect(
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
    with problems_on_stderr():
        found = inspect_data(data, batch_size=batch_size, sequence_length=sequence_length, seed=seed)
    if json_output:
        typer.echo(json.dumps(found))
        return
    for line in describe(found, batch_size=batch_size, sequence_length=sequence_length):
        typer.echo(line)
