"""The resources and figures of a job, by arithmetic, before it takes any machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tpujob.errors import CommandError
from tpujob.output.words import counted, digit_range, magnitude, time_range
from tpujob.questions.extraction_estimate import BANDWIDTH, describe_bounds, on_tpu
from tpujob.questions.forecast import GIB, UTILISATION, hours
from tpujob.questions.prerequisites import Prerequisites, look
from tpujob_resource.jobset.libtpu_arguments import compiler_flags
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.rules.maxtext import run_of
from tpujob_resource.rules.warnings import job_warnings
from tpujob_resource.topology.tables import GENERATIONS


def check_job(
    job: TpuTrainingJob, *, bandwidth: float = BANDWIDTH, environ: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], Prerequisites]:
    """The facts about a job, as JSON values, and what the trainer says of it.

    Args:
        job: The job.
        bandwidth: Bytes per second that a host of an extraction reads or writes.
        environ: With the job's code on PYTHONPATH; None: that of the command line.

    Raises:
        CommandError: with the trainer's line and exit code.
    """
    accelerator, block = job.accelerator, job.spec.trainer or {}
    chips = job.hosts * accelerator.chips_per_host
    is_extraction, model = block.get("task") == "extract", block.get("model") or {}
    with_figures = is_extraction or (bool(block) and job.spec.workers is None)
    needed = look(job, checkpoint_dir=job.spec.checkpoint_dir, is_run=False, environ=environ, with_figures=with_figures)
    facts: dict[str, Any] = {
        "accelerator": job.spec.accelerator,
        "topology": accelerator.topology,
        "slices": job.slices,
        "hosts": job.hosts,
        "chips": chips,
        "machine_type": accelerator.machine_type,
        "note": accelerator.note,
        "libtpu_flags": [str(flag) for flag in compiler_flags(job)],
        "warnings": list(job_warnings(job)),
        "effective": job.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
        "problems": list(needed.problems),
    }
    if (maxtext := run_of(job)) is not None:
        facts["maxtext"] = {**dataclasses.asdict(maxtext), "tokens": maxtext.tokens}
    found, unknown = dict(needed.figures), f"spec.trainer.model.from: what {model.get('from')} comes to is known when"
    if "unknown" in found:
        reason = found["unknown"].removeprefix("spec.trainer.model.from: ")
        facts["unknown"] = f"{unknown} its config.json is read; it was not read here: {reason}"
    elif "missing_module" in found:
        if job.spec.code is None and job.spec.image is None:
            raise CommandError(found["missing_module"])
        where = "spec.code" if job.spec.code is not None else "spec.image"
        custom = f"spec.trainer.model.custom: what {model['custom']} comes to is known where its module is"
        facts["unknown"] = f"{custom}, in {where}; --code FOLDER checks it here"
    elif is_extraction:
        facts["extraction"] = found | on_tpu(job, found, bandwidth)
    elif with_figures:
        facts["warnings"] += found.pop("warnings")
        facts["effective"]["trainer"] = found.pop("effective")
        facts["trainer"] = found | _of_devices(job, found)
    elif "from" in model:
        facts["unknown"] = f"{unknown} its config.json is read"
    facts["warnings"] += needed.warnings
    return facts, needed


def _of_devices(job: TpuTrainingJob, run: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of each device, and on TPUs the hours and the memory of each chip."""
    accelerator = job.accelerator
    devices, chips = job.hosts * accelerator.devices_per_host, job.hosts * accelerator.chips_per_host
    rows = {
        "rows_per_device": run["batch_size"] / devices,
        "micro_batch_rows": run["batch_size"] // (job.spec.trainer or {}).get("gradientAccumulation", 1),
    }
    if not accelerator.is_tpu:
        return rows
    return rows | {
        "hours": hours(accelerator.generation, chips, run["flops"]),
        "state_bytes_per_chip": run["state_bytes_per_device"] * devices / chips,
        "hbm_gib": GENERATIONS[accelerator.generation].hbm_gib,
    }


def describe(facts: Mapping[str, Any]) -> Iterator[str]:
    """The facts in lines for people."""
    slices = f"{facts['slices']} slices of " if facts["slices"] > 1 else ""
    machine = f" ({facts['machine_type']})" if facts["machine_type"] else ""
    hosts, chips = counted(facts["hosts"], "host"), counted(facts["chips"], "chip")
    shape = f"topology {facts['topology']}, {hosts}{machine}, {chips}"
    yield f"{slices}{facts['accelerator']}: {shape}"
    if facts["note"]:
        yield f"  {facts['note']}"
    run = facts.get("trainer")
    if "unknown" in facts:
        yield f"model: {facts['unknown']}"
    if run:
        about = "" if run["vocabulary_is_known"] else "about "
        yield f"model: {about}{magnitude(run['parameters'])} parameters"
        yield (
            f"run: {run['steps']:,} steps of {run['batch_size']:,} x {run['sequence_length']:,} tokens, "
            f"{run['tokens']:,} tokens in all; learning rate {run['learning_rate']:g} "
            f"after {counted(run['warmup_steps'], 'step')}"
        )
        yield f"batch: {_batch(run)}"
    if run and "hours" in run:
        low, high = run["hours"]
        parts = f"{UTILISATION[1]:.0%} to {UTILISATION[0]:.0%}"
        slow, fast = (magnitude(run["tokens"] / hours / 3600) for hours in (high, low))
        yield f"time: {time_range(low * 3600, high * 3600)} at {parts} of the chips' peak, {slow} to {fast} tokens/s"
        yield f"chip-hours: {digit_range(low * facts['chips'], high * facts['chips'])}"
        yield f"mesh: {run['mesh']}"
        yield (
            f"memory: weights and optimizer take {run['state_bytes_per_chip'] / GIB:.2f} of {run['hbm_gib']} GiB "
            "of each chip; activations and gradients come on top"
        )
    if "extraction" in facts:
        yield f"model: {magnitude(facts['extraction']['parameters'])} parameters"
        yield from describe_bounds(facts["extraction"], facts["chips"]) if "forecast" not in facts else ()
    if "maxtext" in facts:
        yield from _maxtext(facts["maxtext"])
    if facts["libtpu_flags"]:
        yield (
            f"compiler: {counted(len(facts['libtpu_flags']), 'recommended flag')} in LIBTPU_INIT_ARGS; "
            "spec.libtpuFlags: none leaves them out"
        )
    for warning in facts["warnings"]:
        yield f"warning: {warning}"


def _maxtext(run: Mapping[str, Any]) -> Iterator[str]:
    saved = f"a checkpoint every {run['checkpoint_period']:,} steps" if run["checkpoint_period"] else "no checkpoints"
    yield (
        f"MaxText: {run['model']}, {run['steps']:,} steps of {run['rows']:,} x {run['sequence_length']:,} tokens, "
        f"{magnitude(run['tokens'])} tokens in all; {saved}"
    )
    if run["defaults"]:
        yield f"  by MaxText's defaults: {', '.join(run['defaults'])}"


def _batch(run: Mapping[str, Any]) -> str:
    """The rows per device of a step and, if gradients are accumulated, of a micro-batch."""
    each = run["rows_per_device"]
    text = f"{magnitude(each)} row{'s' if each != 1 else ''} of each step for each device"
    if run["micro_batch_rows"] != run["batch_size"]:
        parts = run["batch_size"] // run["micro_batch_rows"]
        text += (
            f", in {parts} micro-batches of {run['micro_batch_rows']:,} rows, {magnitude(each / parts)} for each device"
        )
    return text
