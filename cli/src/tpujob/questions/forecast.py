"""What a job will read, write and cost, from the trainer's forecast and your prices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tpujob.errors import CommandError
from tpujob.job.yaml_text import read_value
from tpujob.output.words import counted, size
from tpujob.questions import trainer_program
from tpujob.questions.trainer_program import Program
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.topology.tables import GENERATIONS

PRICES = ("currency", "chipHour", "spotChipHour", "gibMonth")
GIB = 2**30
UTILISATION = (0.3, 0.5)
"""The range of peak utilisation in which efficient training usually runs."""

type Facts = dict[str, Any]


def forecast(job: TpuTrainingJob, run: Mapping[str, Any] | None, *, environ: Mapping[str, str] | None = None) -> Facts:
    """The figures of a job with a trainer block, from some rows of its data.

    Args:
        job: the job.
        run: for training, the result of `check_job`.
        environ: with the job's code on PYTHONPATH; None: that of the command line.

    Raises:
        CommandError: with the trainer's line and exit code.
    """
    if job.spec.trainer is None:
        raise CommandError("--data: the job has no trainer block, so what it reads is not known; leave --data out")
    steps = {} if run is None else {"steps": run["steps"], "tokens": run["tokens"]}
    request = {"trainer": job.spec.trainer, "workers": job.spec.workers or 1, **steps}
    return trainer_program.ask(Program.FORECAST, request, environ=environ)


def read_prices(file: Path) -> Facts:
    """A price table: `currency`, `chipHour` and `spotChipHour` by generation, `gibMonth` of storage.

    Raises:
        CommandError: it cannot be read, or has other keys or values.
    """
    try:
        found = read_value(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"--prices: {file}: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("chipHour"), dict):
        raise CommandError(f"--prices: {file}: chipHour is missing; write `chipHour: {{v5e: 1.2}}`")
    for key in found:
        if key not in PRICES:
            raise CommandError(f"--prices: {file}: {key} is not known; these are: {', '.join(PRICES)}")
    numbers = [*found["chipHour"].values(), *(found.get("spotChipHour") or {}).values(), found.get("gibMonth", 0)]
    if wrong := [value for value in numbers if isinstance(value, bool) or not isinstance(value, int | float)]:
        raise CommandError(f"--prices: {file}: {wrong[0]!r} is not a number")
    return found


def cost(
    prices: Facts, generation: str, *, is_spot: bool, chip_hours: tuple[float, float] | None, num_bytes: int | None
) -> Facts:
    """The cost of the chips and of a month of storage; None for one whose amount or storage price is unknown.

    Raises:
        CommandError: the table has no price for the generation.
    """
    table = (prices.get("spotChipHour") or {}) if is_spot else prices["chipHour"]
    key = "spotChipHour" if is_spot else "chipHour"
    if generation not in table:
        raise CommandError(f"--prices: {key} has no {generation}; it has {', '.join(table) or 'nothing'}")
    month = prices.get("gibMonth")
    return {
        "currency": prices.get("currency", ""),
        "chips": None if chip_hours is None else [hours * table[generation] for hours in chip_hours],
        "storage_month": None if month is None or num_bytes is None else num_bytes / GIB * month,
    }


def describe(found: Mapping[str, Any]) -> Iterator[str]:
    """The forecast in lines for people; none if it is empty."""
    if not found:
        return
    rows = "an unknown number of rows" if found["rows"] is None else counted(found["rows"], "row")
    if "value_bytes" in found:
        yield f"data: {rows}, about {found['rows_used']:,} of use, {found['tokens']:,} tokens ({_sampled(found)})"
        yield (
            f"output: about {size(found['output_bytes'])}, {size(found['value_bytes'])} before compression; "
            f"{size(found['output_bytes_per_worker'])} for each worker"
        )
        yield f"scratch: up to {size(found['scratch_bytes_per_host'])} on each host"
        return
    if not found["tokens_in_data"]:
        yield f"data: {rows}, an unknown number of tokens ({_sampled(found)})"
    else:
        about = "" if found["is_exact"] else "about "
        yield f"data: {rows}, {about}{found['tokens_in_data']:,} tokens ({_sampled(found)}); {_passes(found['passes'])}"
    yield (
        f"output: {counted(found['checkpoints'], 'checkpoint')} of {size(found['checkpoint_bytes'])}, "
        f"{size(found['output_bytes'])} in all; no scratch disk"
    )


def describe_cost(found: Mapping[str, Any] | None) -> Iterator[str]:
    """The cost in lines for people; none without prices."""
    if found is None:
        return
    unit = f" {found['currency']}".rstrip()
    if found["chips"] is not None:
        low, high = found["chips"]
        yield f"cost: {low:,.2f} to {high:,.2f}{unit} for the chips"
    if found["storage_month"] is not None:
        yield f"cost: {found['storage_month']:,.2f}{unit} a month for what it writes"


def _sampled(found: Mapping[str, Any]) -> str:
    return "all counted" if found.get("is_exact") else f"from {counted(found['rows_sampled'], 'row')}"


def _passes(passes: float) -> str:
    return f"{passes:.2g} of a pass over it" if passes < 1 else f"{passes:,.2f} passes over it"


def hours(generation: str, chips: int, flops: float) -> list[float]:
    """The minimum and maximum hours for so many floating-point operations."""
    return [flops / (GENERATIONS[generation].peak_flops * chips * part) / 3600 for part in reversed(UTILISATION)]
