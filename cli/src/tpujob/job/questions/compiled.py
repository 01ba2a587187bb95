"""A job's step, compiled for its slices: `tpujob check --compile` and `--suggest`."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from tpujob.job.questions import trainer_program
from tpujob.job.questions.trainer_program import Program
from tpujob.output.errors import CommandError
from tpujob_resource.jobset.multislice_network import libtpu_arguments
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.models.settings import JobSettings
from tpujob_resource.topology.libtpu_flags import ENVIRONMENT_VARIABLE

GB = 1e9


def compile_job(
    job: TpuTrainingJob, *, vocabulary: int, suggest: bool, environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The figures of the compiled step, with a change that makes it fit, or with a ranking of other layouts.

    Args:
        job: whose step is compiled.
        vocabulary: number of the tokenizer's ids, for a model that does not fix it.
        suggest: compile the best of other layouts, too.
        environ: with the job's code on PYTHONPATH; None: that of the command line.

    Raises:
        CommandError: the job is not one for TPUs with a trainer, or the compiler failed.
    """
    if job.spec.trainer is None or job.spec.workers is not None or not job.accelerator.is_tpu:
        raise CommandError(
            "--compile: only the step of a job with spec.trainer on TPU slices can be compiled; leave it out"
        )
    slices = (job.accelerator.generation, job.accelerator.topology, "--slices", str(job.slices))
    options = ("--vocabulary", str(vocabulary), "--suggest" if suggest else "--mend")
    # The pods' flags, so that the compiled program is the one that runs.
    flags = libtpu_arguments(job, JobSettings())
    environ = os.environ if environ is None else environ
    if flags:
        environ = {**environ, ENVIRONMENT_VARIABLE: flags}
    return trainer_program.ask(Program.COMPILE, *slices, *options, stdin=job.spec.trainer, environ=environ)


def describe_compiled(found: Mapping[str, Any], chips: int) -> Iterator[str]:
    """The figures in lines for people."""
    step = found["step"]
    yield f"compiled for {step['topology']} in {step['compile_seconds']:.0f} s; mesh {_mesh(step['mesh'])}"
    yield f"memory: {_memory(step)}"
    if step["fits"]:
        yield from _speed(step, chips)
    if "change" in found:
        change = found["change"]
        if change is None:
            yield "no single change makes it fit; take more chips, fewer rows or a shorter sequenceLength"
        else:
            yield f"it fits with spec.trainer.{change['change']}: {_memory(change['step'])}"
    if "ranked" in found:
        yield f"other layouts that fit by arithmetic: {found['compared']:,}; compiled, the fastest first:"
    for place, each in enumerate(found.get("ranked", ()), start=1):
        does = "fits" if each["step"]["fits"] else "does not fit"
        speed = f"at least {_seconds(each['step'])}; " if each["step"]["fits"] else ""
        yield f"{place}. {each['change'] or 'as it is'}: {does}, {speed}{_memory(each['step'])}"


def fastest(found: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The layout that --suggest found to be the fastest; None: that is the job as it is, or nothing fits."""
    best = found["ranked"][0]
    return best if best["change"] and best["step"]["fits"] else None


def _speed(step: Mapping[str, Any], chips: int) -> Iterator[str]:
    yield (
        f"a step: {step['step_flops'] / 1e12:,.1f} TFLOP on each device, at least {_seconds(step)}; "
        f"at most {step['tokens_per_second']:,.0f} tokens/s, "
        f"{chips * 1e9 / step['tokens_per_second'] / 3600:,.1f} chip-hours for a billion tokens"
    )
    for each in step["exchanges"]:
        if each["sent_bytes"] > GB / 100:
            where = "between slices" if each["is_between_slices"] else f"over {each['axes'] or 'devices'}"
            how = "beside arithmetic" if each["is_asynchronous"] else "waited for"
            yield f"  {each['kind']} {where}: {each['sent_bytes'] / GB:,.2f} GB in {each['count']:,}, {how}"


def _seconds(step: Mapping[str, Any]) -> str:
    """The minimum time of a step and its parts, in words."""
    whole, memory = step["ideal_step_seconds"], step["memory_seconds"]
    if memory >= whole:
        return f"{whole:.3f} s, to read and write the state"
    hidden = f", {step['hidden_seconds']:.3f} s more beside it" if step["hidden_seconds"] >= whole / 1000 else ""
    return (
        f"{whole:.3f} s: {step['computing_seconds']:.3f} s of arithmetic, "
        f"{step['waiting_seconds']:.3f} s waiting for exchanges{hidden}"
    )


def _memory(step: Mapping[str, Any]) -> str:
    limit, peak = step["hbm_limit_bytes"], step["peak_bytes"]
    parts = ""
    if step["argument_bytes"] is not None:
        parts = f" (state {step['argument_bytes'] / GB:.2f}, temporary {step['temporary_bytes'] / GB:.2f})"
    if step.get("host_bytes"):
        parts += f", and {step['host_bytes'] / GB:.2f} GB of its host's memory"
    over = "" if step["fits"] else f"; {(peak - limit) / GB:.2f} GB too much"
    return f"{peak / GB:.2f} of {limit / GB:.2f} GB on each device{parts}{over}"


def _mesh(mesh: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} {size}" for axis, size in mesh.items()) or "one device"
