"""The resources and figures of a job, by arithmetic, before it takes any machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tpujob import trainer_program
from tpujob.checking.extraction import BANDWIDTH, describe_bounds, on_tpu
from tpujob.checking.forecast import GIB
from tpujob.checking.pace import UTILISATION, hours
from tpujob.errors import CommandError
from tpujob.output.words import counted, digit_range, magnitude, time_range
from tpujob.trainer_program import Program
from tpujob_resource.jobset.libtpu_arguments import compiler_flags
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.rules.maxtext import run_of
from tpujob_resource.rules.warnings import job_warnings
from tpujob_resource.topology.tables import GENERATIONS


def check_job(
    job: TpuTrainingJob, *, bandwidth: float = BANDWIDTH, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The facts about a job, as JSON values.

    Args:
        job: The job.
        bandwidth: Bytes per second that a host of an extraction reads or writes.
        environ: With the job's code on PYTHONPATH; None: that of the command line.

    Raises:
        CommandError: with the trainer's line and exit code.
    """
    accelerator = job.accelerator
    chips = job.hosts * accelerator.chips_per_host
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
    }
    if (maxtext := run_of(job)) is not None:
        facts["maxtext"] = {**dataclasses.asdict(maxtext), "tokens": maxtext.tokens}
    model = (job.spec.trainer or {}).get("model") or {}
    unknown = f"spec.trainer.model.from: what {model.get('from')} comes to is known when its config.json is read"
    if (job.spec.trainer or {}).get("task") == "extract":
        found = trainer_program.ask(Program.EXTRACTION_BOUNDS, {"trainer": job.spec.trainer}, environ=environ)
        if "unknown" in found:
            return facts | {"unknown": _unread(unknown, found)}
        facts["extraction"] = found | on_tpu(job, found, bandwidth)
    elif "from" in model and job.spec.workers is not None:
        facts["unknown"] = unknown
    elif job.spec.trainer is not None and job.spec.workers is None:
        facts |= _trained(job, facts, unknown, environ)
    return facts


def _trained(
    job: TpuTrainingJob, facts: dict[str, Any], unknown: str, environ: Mapping[str, str] | None
) -> dict[str, Any]:
    """The figures of a training, or why there are none; adds warnings and effective values to `facts`."""
    accelerator, block = job.accelerator, job.spec.trainer or {}
    devices = job.hosts * accelerator.devices_per_host
    request = {
        "trainer": block,
        "devices": devices,
        "slices": job.slices,
        "platform": "tpu" if accelerator.is_tpu else "cpu",
        "generation": accelerator.generation if accelerator.is_tpu else None,
    }
    found = trainer_program.ask(Program.ARITHMETIC, request, environ=environ)
    if "unknown" in found:
        return {"unknown": _unread(unknown, found)}
    if "missing_module" in found:
        if job.spec.code is None and job.spec.image is None:
            raise CommandError(found["missing_module"])
        where = "spec.code" if job.spec.code is not None else "spec.image"
        custom = f"spec.trainer.model.custom: what {block['model']['custom']} comes to is known where its module is"
        return {"unknown": f"{custom}, in {where}; --code FOLDER checks it here"}
    facts["warnings"] += found.pop("warnings")
    facts["effective"]["trainer"] = found.pop("effective")
    of_tpu = _on_tpu(accelerator.generation, facts["chips"], devices, found) if accelerator.is_tpu else {}
    rows = {
        "rows_per_device": found["batch_size"] / devices,
        "micro_batch_rows": found["batch_size"] // block.get("gradientAccumulation", 1),
    }
    return {"trainer": {**found, **rows, **of_tpu}}


def _unread(unknown: str, found: Mapping[str, Any]) -> str:
    return f"{unknown}; it was not read here: {found['unknown'].removeprefix('spec.trainer.model.from: ')}"


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


def _on_tpu(generation: str, chips: int, devices: int, run: Mapping[str, Any]) -> dict[str, Any]:
    state = run["state_bytes_per_device"] * devices / chips
    return {
        "hours": hours(generation, chips, run["flops"]),
        "state_bytes_per_chip": state,
        "hbm_gib": GENERATIONS[generation].hbm_gib,
    }
