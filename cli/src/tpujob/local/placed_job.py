"""A job, or a program without a job file, and its placement on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.errors import CommandError
from tpujob.job.job_file import load_document, local_job, read_document
from tpujob.job.program import command_line, is_program, job_of
from tpujob.job.set_fields import with_fields
from tpujob.local import tpu_machine
from tpujob.local.placement import HostOptions, Placement, place
from tpujob_resource.models.job import TpuTrainingJob


@dataclass(frozen=True)
class PlacedJob:
    """A job, and which of its processes run here."""

    job: TpuTrainingJob
    placement: Placement
    again: str
    """The command or call that runs it again, for messages."""


def placed_file(
    file: Path, arguments: Sequence[str], accelerator: str | None, settings: Sequence[str], options: HostOptions
) -> PlacedJob:
    """The job in a file, or the job of a program, which by default runs on the slice of this TPU VM, if it is one.

    Raises:
        CommandError: there is no such file, a wrong field, or the machine does not fit the job.
    """
    again = command_line(file, arguments, accelerator, settings, options.words())
    if not is_program(file):
        for option, value in (("--accelerator", accelerator), ("arguments", " ".join(arguments))):
            if value:
                raise CommandError(f"{option}: {value} goes with a program; {file} is a job, which has its own in spec")
        return placed_document(read_document(file), file, settings, options, again=again)
    machine = tpu_machine.look(wants_vm=options.asks_metadata)
    if accelerator is None and machine.vm is not None and not options.cpu:
        accelerator = machine.vm.accelerator_type
    job = load_document(with_fields(job_of(file, arguments, accelerator), settings), file)
    return PlacedJob(job, place(job, options, machine), again)


def placed_document(
    document: Mapping[str, Any], source: Path, settings: Sequence[str], options: HostOptions, *, again: str
) -> PlacedJob:
    """The job that a document describes; `source` is its file name in messages, `again` the command that repeats it.

    Raises:
        CommandError: a wrong field, or the machine does not fit the job.
    """
    job = local_job(document, source, settings)
    return PlacedJob(job, place(job, options, tpu_machine.look(wants_vm=options.asks_metadata)), again)
