"""A job made of a program alone, for the chips of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tpujob.jobs.job_file import load_document
from tpujob.jobs.program import job_of
from tpujob.jobs.set_fields import with_fields
from tpujob.local.placement import HostOptions
from tpujob.local.tpu_machine import TpuMachine
from tpujob_resource.models.job import TpuTrainingJob


def program_job(
    program: Path,
    arguments: Sequence[str],
    accelerator: str | None,
    settings: Sequence[str],
    options: HostOptions,
    machine: TpuMachine,
) -> TpuTrainingJob:
    """The job that runs a program with its arguments; without an accelerator, on the slice that this machine is of.

    Raises:
        CommandError: there is no such program, or a wrong field is set.
    """
    if accelerator is None and machine.vm is not None and not options.cpu:
        accelerator = machine.vm.accelerator_type
    return load_document(with_fields(job_of(program, arguments, accelerator), settings), program)
