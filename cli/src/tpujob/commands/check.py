"""`tpujob check`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tpujob.commands.options import JobFile, Output, Settings, problems_on_stderr
from tpujob.output import OutputFormat, write

if TYPE_CHECKING:
    from tpujob_resource.models.job import TpuTrainingJob


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
    from tpujob.errors import CommandError
    from tpujob.job.edit_file import write_trainer_fields
    from tpujob.job.job_file import read_job
    from tpujob.questions.compiled import fastest

    with problems_on_stderr():
        if write_best and (settings or not suggest):
            raise CommandError("--write: goes with --suggest and without --set, as the file is what is compared")
        facts, effective, exit_code = _facts(
            read_job(job_file, settings or ()),
            code=code, bandwidth=bandwidth, data=data, prices=prices, compile_step=compile_step, suggest=suggest,
        )  # fmt: skip
    if output is not OutputFormat.TEXT:
        write(facts | ({"effective": {"spec": effective}} if show_all else {}), output)
    else:
        for line in text_of(facts):
            typer.echo(line)
        if show_all:
            write({"spec": _without_none(effective)}, OutputFormat.YAML)
    best = fastest(facts["compiled"]) if write_best else None
    if best is not None:
        with problems_on_stderr():
            write_trainer_fields(job_file, best["fields"])
        typer.echo(f"{job_file} has spec.trainer.{best['change']} now", err=output is not OutputFormat.TEXT)
    for problem in facts["problems"] if output is OutputFormat.TEXT else ():
        typer.echo(problem, err=True)
    if facts["problems"]:
        raise typer.Exit(exit_code)
    if "compiled" in facts and not facts["compiled"]["step"]["fits"] and best is None:
        raise typer.Exit(1)


def _facts(
    job: TpuTrainingJob,
    *,
    code: Path | None,
    bandwidth: float,
    data: bool,
    prices: Path | None,
    compile_step: bool,
    suggest: bool,
) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The facts about the job, its specification with all defaults, and the exit code if there are problems."""
    from tpujob.code.unpacked import importable
    from tpujob.questions.compiled import compile_job
    from tpujob.questions.extraction_estimate import MEGABYTE, on_tpu
    from tpujob.questions.forecast import forecast, read_prices
    from tpujob.questions.summary import check_job

    table = None if prices is None else read_prices(prices)
    with importable(code) as environ:
        facts, needed = check_job(job, bandwidth=bandwidth * MEGABYTE, environ=environ)
        effective = facts.pop("effective")
        if data:
            found = forecast(job, facts.get("trainer"), environ=environ)
            on_chips = on_tpu(job, found, bandwidth * MEGABYTE) if "value_bytes" in found else {}
            facts["forecast"] = found | on_chips
        if table is not None:
            facts["cost"] = _cost(job, facts, table)
        if compile_step or suggest:
            words = facts["trainer"]["vocabulary"] if "trainer" in facts else 2
            facts["compiled"] = compile_job(job, vocabulary=words, suggest=suggest, environ=environ)
    return facts, effective, needed.exit_code


def text_of(facts: dict[str, Any]) -> Iterator[str]:
    """The facts about a job, as JSON has them, in lines for people."""
    from tpujob.questions.compiled import describe_compiled
    from tpujob.questions.extraction_estimate import describe_on_tpu
    from tpujob.questions.forecast import describe as describe_forecast
    from tpujob.questions.forecast import describe_cost
    from tpujob.questions.summary import describe

    forecast = facts.get("forecast", {})
    yield from describe(facts)
    yield from describe_forecast(forecast)
    yield from describe_on_tpu(forecast, facts["chips"])
    yield from describe_cost(facts.get("cost"))
    if "compiled" in facts:
        yield from describe_compiled(facts["compiled"], facts["chips"])


def _without_none(value: Any) -> Any:
    """The value without fields that are None."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value


def _cost(job: TpuTrainingJob, facts: dict[str, Any], prices: dict[str, Any]) -> dict[str, Any]:
    from tpujob.questions.forecast import cost

    found = facts.get("forecast", {})
    hours = found.get("hours") or facts.get("trainer", {}).get("hours")
    return cost(
        prices,
        job.accelerator.generation,
        is_spot=bool(job.spec.capacity and job.spec.capacity.spot),
        chip_hours=None if hours is None else (hours[0] * facts["chips"], hours[1] * facts["chips"]),
        num_bytes=found.get("output_bytes"),
    )
