"""`tpujob extract`."""

from typing import Annotated

import typer

from tpujob.commands.options import Directory, Output, problems_on_stderr
from tpujob.output.documents import OutputFormat, show
from tpujob.output.words import counted

app = typer.Typer(
    help="Inspect, verify and merge extracted activations.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("status")
def status(
    directory: Directory,
    output: Output = OutputFormat.TEXT,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until all units are done.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two refreshes, with --watch.", min=0.5)] = 5.0,
    chip_hour_price: Annotated[
        float | None, typer.Option(help="Price of a chip-hour, to show the cost so far and the remaining cost.", min=0)
    ] = None,
) -> None:
    """Show an extraction's progress and its workers.

    Units done, claimed and left, the rate, the time left, chip-hours, each worker, and failures by cause.
    """
    from tpujob.job.questions.extraction import describe, priced, watched
    from tpujob.job.questions.trainer_program import Program, ask, follow

    asked = (Program.EXTRACTION, "status", directory)
    with problems_on_stderr():
        answers = follow(*asked, "--every", str(every)) if watch else iter([ask(*asked)])
        statuses = (priced(each, chip_hour_price) for each in answers)
        if watch and output is OutputFormat.TEXT:
            watched(statuses)
            return
        for found in statuses:
            show(found, output, describe(found))


@app.command("verify")
def verify(
    directory: Directory,
    output: Output = OutputFormat.TEXT,
    read_all: Annotated[
        bool, typer.Option("--read-all", help="Read every file, even where storage keeps checksums.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Reset units with damaged files: the next run extracts them again.")
    ] = False,
) -> None:
    """Check units, file sizes and checksums.

    Every unit must be done, and every file must match what its worker recorded. Prints a line for each problem; exit
    code 1 if there is any.
    """
    from tpujob.job.questions.extraction import verified
    from tpujob.job.questions.trainer_program import Program, ask

    options = {"--read-all": read_all, "--repair": repair}
    with problems_on_stderr():
        found = ask(Program.EXTRACTION, "verify", directory, *(name for name, is_set in options.items() if is_set))
    lines = [*found["problems"], verified(found)]
    if again := found.get("given_back"):
        lines.append(f"given back: {counted(len(again), 'unit')} ({', '.join(map(str, again))}); run the job again")
    show(found, output, lines)
    raise typer.Exit(1 if found["problems"] else 0)


@app.command("merge")
def merge(
    directory: Directory,
    output: Output = OutputFormat.TEXT,
    remove_leftovers: Annotated[
        bool, typer.Option("--remove-leftovers", help="Delete files of workers that were killed or finished too late.")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Merge the units that are done, while others are still running.")
    ] = False,
) -> None:
    """Merge the files into one data set.

    Writes an index, statistics, and a card for `datasets.load_dataset(DIRECTORY)`. Nothing is copied. Every unit must
    be done, unless --partial is given; merge again for the rest.
    """
    from tpujob.job.questions.extraction import verified
    from tpujob.job.questions.trainer_program import Program, ask

    options = {"--remove-leftovers": remove_leftovers, "--partial": partial}
    with problems_on_stderr():
        found = ask(Program.EXTRACTION, "merge", directory, *(name for name, is_set in options.items() if is_set))
    lines = [verified(found), f"written: {', '.join(found['written'])}"]
    if found["units"] < found["of_units"]:
        lines.insert(1, f"{found['units']} of {found['of_units']} units: merge again when the others are done")
    show(found, output, lines)
