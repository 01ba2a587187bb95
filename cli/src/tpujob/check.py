"""What a job asks for and comes to, by arithmetic: before anything is booked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tpujob.errors import CommandError
from tpujob_operator.api.job import TpuTrainingJob

PROGRAM = "tpujob_trainer.train.arithmetic"
PEAK_FLOPS = {"v4": 275e12, "v5e": 197e12, "v5p": 459e12, "v6e": 918e12, "tpu7x": 2307e12}
"""Of a chip in bfloat16: Cloud TPU documentation, "System architecture" of each generation."""
HBM_GIB = {"v4": 32, "v5e": 16, "v5p": 95, "v6e": 32, "tpu7x": 192}
"""Of a chip, as marketed; a program gets a little less."""
UTILISATION = (0.3, 0.5)
"""Between which part of the peak well-made training usually runs."""
GIB = 2**30


def check_job(job: TpuTrainingJob) -> dict[str, Any]:
    """The facts about a job, as JSON values.

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
        "warnings": _warnings(job),
    }
    if job.spec.trainer is not None and job.spec.workers is None:
        devices = job.hosts * accelerator.devices_per_host
        found = _arithmetic(job.spec.trainer, devices, "tpu" if accelerator.is_tpu else "cpu")
        facts["warnings"] += found.pop("warnings")
        facts["trainer"] = {
            **found,
            **(_on_tpu(accelerator.generation, chips, devices, found) if accelerator.is_tpu else {}),
        }
    return facts


def describe(facts: Mapping[str, Any]) -> Iterator[str]:
    """The facts in lines for people."""
    slices = f"{facts['slices']} slices of " if facts["slices"] > 1 else ""
    machine = f" ({facts['machine_type']})" if facts["machine_type"] else ""
    shape = f"topology {facts['topology']}, {facts['hosts']} hosts{machine}, {facts['chips']} chips"
    yield f"{slices}{facts['accelerator']}: {shape}"
    if facts["note"]:
        yield f"  {facts['note']}"
    run = facts.get("trainer")
    if run:
        about = "" if run["vocabulary_is_known"] else "about "
        yield f"model: {about}{run['parameters'] / 1e6:,.1f} M parameters"
        yield (
            f"run: {run['steps']:,} steps of {run['batch_size']:,} x {run['sequence_length']:,} tokens, "
            f"{run['tokens']:,} tokens in all; learning rate {run['learning_rate']:g} "
            f"after {run['warmup_steps']:,} steps"
        )
    if run and "hours" in run:
        low, high = run["hours"]
        parts = f"{UTILISATION[1]:.0%} to {UTILISATION[0]:.0%}"
        yield f"time: {low:,.1f} to {high:,.1f} hours at {parts} of the chips' peak"
        yield f"cost: {low * facts['chips']:,.0f} to {high * facts['chips']:,.0f} chip-hours"
        yield (
            f"memory: weights and optimizer take {run['state_bytes_per_chip'] / GIB:.2f} of {run['hbm_gib']} GiB "
            "of each chip; activations and gradients come on top"
        )
    for warning in facts["warnings"]:
        yield f"warning: {warning}"


def _on_tpu(generation: str, chips: int, devices: int, run: Mapping[str, Any]) -> dict[str, Any]:
    hours = [run["flops"] / (PEAK_FLOPS[generation] * chips * part) / 3600 for part in reversed(UTILISATION)]
    state = run["state_bytes_per_device"] * devices / chips
    return {"hours": hours, "state_bytes_per_chip": state, "hbm_gib": HBM_GIB[generation]}


def _warnings(job: TpuTrainingJob) -> list[str]:
    spec, found = job.spec, []
    if spec.checkpoint_dir is None and job.accelerator.is_tpu:
        found.append("spec.checkpointDir: is missing, so nothing is saved and every restart begins at step 0")
    data = (spec.trainer or {}).get("data") or {}
    path = data.get("path")
    if job.accelerator.is_tpu and isinstance(path, str) and "://" not in path and not path.startswith("/"):
        found.append(f"spec.trainer.data.path: {path!r} is relative; pods do not have this folder, so give an address")
    if spec.capacity and spec.capacity.spot and spec.grace_period_seconds > 30:
        found.append(f"spec.gracePeriodSeconds: {spec.grace_period_seconds}, and spot machines give 30")
    return found


def _arithmetic(block: Mapping[str, Any], devices: int, platform: str) -> dict[str, Any]:
    asked = json.dumps({"trainer": block, "devices": devices, "platform": platform})
    done = subprocess.run([sys.executable, "-m", PROGRAM, asked], capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"{PROGRAM} ended with {done.returncode}"]
        raise CommandError(lines[-1], exit_code=done.returncode)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
