"""The facts about a job in lines for people."""

from collections.abc import Iterator

from tpujob.job.questions.compiled import describe_compiled
from tpujob.job.questions.estimates import COMPILE_SECONDS, GIB, MEGABYTE, UTILISATION, Cost, ExtractionOnChips
from tpujob.job.questions.estimates import TrainingOnDevices as OnDevices
from tpujob.job.questions.job_facts import JobFacts
from tpujob.output.words import counted, digit_range, magnitude, size, time_range
from tpujob_contract.job_facts import ExtractionBounds, ExtractionForecast, TrainingFigures, TrainingForecast
from tpujob_resource.rules.maxtext import MaxTextRun

OF_PEAK = f"{UTILISATION[1]:.0%} to {UTILISATION[0]:.0%}"


def lines(facts: JobFacts) -> Iterator[str]:
    """All facts, a line each."""
    slices = f"{facts.slices} slices of " if facts.slices > 1 else ""
    machine = f" ({facts.machine_type})" if facts.machine_type else ""
    hosts, chips = counted(facts.hosts, "host"), counted(facts.chips, "chip")
    yield f"{slices}{facts.accelerator}: topology {facts.topology}, {hosts}{machine}, {chips}"
    if facts.note:
        yield f"  {facts.note}"
    if facts.unknown is not None:
        yield f"model: {facts.unknown}"
    found, estimates = facts.trainer, facts.estimates
    if found.training is not None and estimates.training is not None:
        yield from _training(found.training, estimates.training, facts.chips)
    if found.extraction is not None:
        yield f"model: {magnitude(found.extraction.parameters)} parameters"
        if found.forecast is None:  # its figures are closer
            yield from _bounds(found.extraction)
            bound = "" if found.extraction.rows is None else "at most "
            yield from _on_chips(estimates.extraction, facts.chips, bound)
    if facts.maxtext is not None:
        yield from _maxtext(facts.maxtext)
    if facts.libtpu_flags:
        flags = counted(len(facts.libtpu_flags), "recommended flag")
        yield f"compiler: {flags} in LIBTPU_INIT_ARGS; spec.libtpuFlags: none leaves them out"
    for warning in facts.warnings:
        yield f"warning: {warning}"
    if isinstance(found.forecast, ExtractionForecast):
        yield from _extraction_forecast(found.forecast)
    elif found.forecast is not None:
        yield from _training_forecast(found.forecast)
    yield from _on_chips(estimates.forecast, facts.chips)
    if estimates.cost is not None:
        yield from _cost(estimates.cost)
    if facts.compiled is not None:
        yield from describe_compiled(facts.compiled, facts.chips)


def _training(run: TrainingFigures, on_devices: OnDevices, chips: int) -> Iterator[str]:
    yield f"model: {'' if run.vocabulary_is_known else 'about '}{magnitude(run.parameters)} parameters"
    yield (
        f"run: {run.steps:,} steps of {run.batch_size:,} x {run.sequence_length:,} tokens, {run.tokens:,} tokens in "
        f"all; learning rate {run.learning_rate:g} after {counted(run.warmup_steps, 'step')}"
    )
    yield f"batch: {_batch(run, on_devices)}"
    if (on_chips := on_devices.chips) is None:
        return
    low, high = on_chips.hours
    slow, fast = (magnitude(run.tokens / hours / 3600) for hours in (high, low))
    yield f"time: {time_range(low * 3600, high * 3600)} at {OF_PEAK} of the chips' peak, {slow} to {fast} tokens/s"
    yield f"chip-hours: {digit_range(low * chips, high * chips)}"
    yield f"mesh: {run.mesh}"
    yield (
        f"memory: weights and optimizer take {on_chips.state_bytes_per_chip / GIB:.2f} of {on_chips.hbm_gib} GiB of "
        "each chip; activations and gradients come on top"
    )


def _batch(run: TrainingFigures, on_devices: OnDevices) -> str:
    """The rows per device of a step and, if gradients are accumulated, of a micro-batch."""
    each = on_devices.rows_per_device
    text = f"{magnitude(each)} row{'s' if each != 1 else ''} of each step for each device"
    if (rows := on_devices.micro_batch_rows) != run.batch_size:
        parts = run.batch_size // rows
        text += f", in {parts} micro-batches of {rows:,} rows, {magnitude(each / parts)} for each device"
    return text


def _bounds(found: ExtractionBounds) -> Iterator[str]:
    each = f"up to {found.sequence_length:,} tokens and {size(found.row_bytes)} of values before compression"
    if found.rows is None or found.tokens is None or found.value_bytes is None:
        yield f"extraction: all rows of the data, each of {each}; --data counts them"
        return
    total = f"up to {magnitude(found.tokens)} tokens and {size(found.value_bytes)}"
    yield f"extraction: at most {counted(found.rows, 'row')} of {each}: {total} in all; --data says more"


def _on_chips(found: ExtractionOnChips | None, chips: int, bound: str = "") -> Iterator[str]:
    """Memory and time of an extraction, as far as they are known; `bound` precedes figures that are upper bounds."""
    if found is None:
        return
    held = found.weight_bytes_per_chip / GIB
    rest = "activations come on top" if held < found.hbm_gib else "they do not fit; take hosts with more chips"
    yield f"memory: weights take {held:.2f} of {found.hbm_gib} GiB of each chip; {rest}"
    if (times := found.times) is None:
        return
    low, high = (3600 * each for each in times.hours)
    yield f"time: {bound}{time_range(low, high)}, of which each host"
    rate = f"{times.bandwidth / MEGABYTE:,.0f} MB/s, --bandwidth"
    reading, writing = (time_range(each, each) for each in (times.reading_seconds, times.writing_seconds))
    yield f"  reads weights for {reading} ({rate}) and compiles for {time_range(*COMPILE_SECONDS)} (assumed),"
    computing = time_range(*(3600 * each for each in times.computing_hours))
    yield f"  then computes for {computing}, at {OF_PEAK} of the chips' peak, and uploads for {writing} beside it"
    yield f"chip-hours: {bound}{digit_range(*(each * chips for each in times.hours))}"


def _maxtext(run: MaxTextRun) -> Iterator[str]:
    saved = f"a checkpoint every {run.checkpoint_period:,} steps" if run.checkpoint_period else "no checkpoints"
    yield (
        f"MaxText: {run.model}, {run.steps:,} steps of {run.rows:,} x {run.sequence_length:,} tokens, "
        f"{magnitude(run.tokens)} tokens in all; {saved}"
    )
    if run.defaults:
        yield f"  by MaxText's defaults: {', '.join(run.defaults)}"


def _extraction_forecast(found: ExtractionForecast) -> Iterator[str]:
    sampled = f"from {counted(found.rows_sampled, 'row')}"
    rows = counted(found.rows, "row")
    yield f"data: {rows}, about {found.rows_used:,} of use, {found.tokens:,} tokens ({sampled})"
    yield (
        f"output: about {size(found.output_bytes)}, {size(found.value_bytes)} before compression; "
        f"{size(found.output_bytes_per_worker)} for each worker"
    )
    yield f"scratch: up to {size(found.scratch_bytes_per_host)} on each host"


def _training_forecast(found: TrainingForecast) -> Iterator[str]:
    rows = "an unknown number of rows" if found.rows is None else counted(found.rows, "row")
    sampled = "all counted" if found.is_exact else f"from {counted(found.rows_sampled, 'row')}"
    if not found.tokens_in_data or found.passes is None:
        yield f"data: {rows}, an unknown number of tokens ({sampled})"
    else:
        about = "" if found.is_exact else "about "
        yield f"data: {rows}, {about}{found.tokens_in_data:,} tokens ({sampled}); {_passes(found.passes)}"
    if found.skipped:
        causes = ", ".join(f"{count:,} {cause}" for cause, count in sorted(found.skipped.items()))
        yield f"  left out, of {counted(found.rows_sampled, 'row')}: {causes}"
    yield (
        f"output: {counted(found.checkpoints, 'checkpoint')} of {size(found.checkpoint_bytes)}, "
        f"{size(found.output_bytes)} in all; no scratch disk"
    )


def _passes(passes: float) -> str:
    return f"{passes:.2g} of a pass over it" if passes < 1 else f"{passes:,.2f} passes over it"


def _cost(found: Cost) -> Iterator[str]:
    unit = f" {found.currency}".rstrip()
    if found.chips is not None:
        low, high = found.chips
        yield f"cost: {low:,.2f} to {high:,.2f}{unit} for the chips"
    if found.storage_month is not None:
        yield f"cost: {found.storage_month:,.2f}{unit} a month for what it writes"
