"""`tpujob check`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tpujob.commands.options import JobFile, Output, Settings, problems_on_stderr
from tpujob.output.documents import OutputFormat, write

CompileStep = Annotated[
    bool,
    typer.Option(
        "--compile",
        help="Also compile the step for the slices: memory, collectives, minimum time of a step, and if it does not "
        "fit, one change that makes it fit. Takes one to several minutes; needs Linux on x86-64 and `pip install "
        "tpujob-trainer[tpu]`, but no TPU. Exit code 1 if it does not fit.",
    ),
]
Data = Annotated[
    bool,
    typer.Option(
        "--data",
        help="Sample the data, and estimate what the job reads and writes: rows, tokens, passes over the data, "
        "bytes, scratch disk.",
    ),
]
Prices = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="YAML file with prices, to estimate the cost: `chipHour: {v5e: 1.2}`, optionally `spotChipHour`, "
        "`gibMonth` (storage, with --data) and `currency`.",
        show_default=False,
    ),
]
Bandwidth = Annotated[
    float,
    typer.Option(
        metavar="MB/S",
        help="Bandwidth between a host of an extraction and its storage, to estimate the time.",
        min=0.001,
    ),
]
Code = Annotated[
    Path | None,
    typer.Option(help="Folder with the code of the job's own model, loss or optimizer; packed as by `submit`."),
]
ShowAll = Annotated[
    bool,
    typer.Option("--all", help="Print the value of every field, with defaults and derived values."),
]
Suggest = Annotated[
    bool,
    typer.Option(
        "--suggest",
        help="Compare other settings of mesh, model.remat and gradientAccumulation by arithmetic, compile the best "
        "(up to half an hour), and rank them.",
    ),
]
WriteBest = Annotated[bool, typer.Option("--write", help="With --suggest: write the fastest layout into JOB.YAML.")]


def check(
    job_file: JobFile,
    settings: Settings = None,
    output: Output = OutputFormat.TEXT,
    compile_step: CompileStep = False,
    data: Data = False,
    prices: Prices = None,
    bandwidth: Bandwidth = 200,
    code: Code = None,
    show_all: ShowAll = False,
    suggest: Suggest = False,
    write_best: WriteBest = False,
) -> None:
    """Summarize a job: hosts, memory, hours, cost, warnings.

    Also parameters, steps, batches and chip-hours. Everything is calculated, without a device. Hours assume 30 to 50 %
    of the chips' peak.
    """
    from tpujob.job.code.job_code import importable, refuse_unpinned
    from tpujob.job.edit_file import write_trainer_fields
    from tpujob.job.job_file import read_job
    from tpujob.job.questions.compiled import fastest
    from tpujob.job.questions.estimates import MEGABYTE
    from tpujob.job.questions.facts_text import lines
    from tpujob.job.questions.job_facts import check_job
    from tpujob.output.errors import CommandError

    is_text = output is OutputFormat.TEXT
    with problems_on_stderr():
        if write_best and (settings or not suggest):
            raise CommandError("--write: goes with --suggest and without --set, as the file is what is compared")
        job = read_job(job_file, settings or ())
        if job.spec.packages is not None and (code is not None or job.spec.code is None):
            refuse_unpinned(job.spec.packages.requirements, code or Path())
        with importable(code) as environ:
            facts = check_job(
                job, bandwidth=bandwidth * MEGABYTE, environ=environ, prices=prices, folder=code,
                has_forecast=data, is_compiled=compile_step, suggest=suggest,
            )  # fmt: skip
    if is_text:
        for line in lines(facts):
            typer.echo(line)
        if show_all:
            write({"spec": _without_none(facts.effective)}, OutputFormat.YAML)
    else:
        write(facts.as_json() | ({"effective": {"spec": facts.effective}} if show_all else {}), output)
    best = fastest(facts.compiled) if write_best and facts.compiled is not None else None
    if best is not None:
        with problems_on_stderr():
            write_trainer_fields(job_file, best["fields"])
        typer.echo(f"{job_file} has spec.trainer.{best['change']} now", err=not is_text)
    problems = facts.trainer.problems
    for problem in problems if is_text else ():
        typer.echo(problem.message, err=True)
    if problems:
        raise typer.Exit(problems[0].exit_code)
    if facts.compiled is not None and not facts.compiled["step"]["fits"] and best is None:
        raise typer.Exit(1)


def _without_none(value: Any) -> Any:
    """The value without fields that are None."""
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
