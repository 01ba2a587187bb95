"""Which processes of a job, or of a program without a job file, `tpujob run` starts here, and on which devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpujob.job.job_file import load_document, local_job, read_document
from tpujob.job.set_fields import with_fields
from tpujob.job.template import command_line, is_program, job_of
from tpujob.local import tpu_machine
from tpujob.local.tpu_machine import TpuMachine
from tpujob.output.errors import CommandError
from tpujob.output.words import counted
from tpujob_contract import ports
from tpujob_resource.models.job import TpuTrainingJob
from tpujob_resource.topology.errors import InvalidField
from tpujob_resource.topology.parse import parse_accelerator

AUTO = "auto"
"""Value of --hosts: the addresses are taken from the metadata of the TPU VM."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The part of a job that runs on this machine, and its devices."""

    on_chips: bool = False
    """Whether the processes use TPU chips; otherwise CPU devices."""
    host: int | None = None
    """The process that runs here; None: all of them."""
    coordinator: str | None = None
    """host:port of process 0; None: on this machine, at a free port."""

    @property
    def is_distributed(self) -> bool:
        """Whether other machines run other processes of the job."""
        return self.host is not None


HERE = Placement()
"""All processes on this machine, on CPU devices."""


@dataclass(frozen=True)
class HostOptions:
    """The options of the command line about machines."""

    hosts: str | None = None
    """Addresses, separated by commas, or `auto`."""
    host: int | None = None
    """Number of this machine among them, or of a worker."""
    cpu: bool = False
    """Whether CPU devices stand in for TPU chips."""

    def words(self) -> list[str]:
        """These options as words of a command line."""
        hosts = [] if self.hosts is None else ["--hosts", self.hosts]
        host = [] if self.host is None else ["--host", str(self.host)]
        return [*hosts, *host, *(["--cpu"] if self.cpu else [])]

    @property
    def asks_metadata(self) -> bool:
        """Whether the metadata server is needed."""
        return self.hosts == AUTO


def place(job: TpuTrainingJob, options: HostOptions, machine: TpuMachine) -> Placement:
    """The placement of a job on this machine.

    A TPU job on a machine with chips uses them, unless --cpu is given; a TPU VM is one of the hosts of its slice.
    Without chips all processes run here, on CPU devices, unless --hosts names other machines.

    Raises:
        CommandError: the machine's TPU is not the job's, or the options do not fit the job.
    """
    on_chips = job.accelerator.is_tpu and machine.chips > 0 and not options.cpu
    if on_chips or options.asks_metadata:
        _require_same_slice(job, machine, is_needed=options.asks_metadata)
    if job.spec.workers is not None:
        return _worker(job, options, on_chips=on_chips)
    if on_chips and job.slices > 1:
        raise CommandError(
            f"spec.slices: {job.slices} slices are joined on a cluster only; `tpujob submit` runs them, slices: 1 runs "
            "on this machine's, and --cpu rehearses all of them here"
        )
    number, addresses = _hosts(job, options, machine, on_chips=on_chips)
    if not addresses:
        return Placement(on_chips=on_chips)
    lead = addresses[0] if ":" in addresses[0] else f"{addresses[0]}:{ports.COORDINATOR}"
    return Placement(on_chips=on_chips, host=number, coordinator=lead)


def _hosts(
    job: TpuTrainingJob, options: HostOptions, machine: TpuMachine, *, on_chips: bool
) -> tuple[int, tuple[str, ...]]:
    """The number of this machine and the addresses of all machines; no addresses: all processes run here."""
    if options.hosts is not None and not options.asks_metadata:
        addresses = tuple(each.strip() for each in options.hosts.split(","))
        if options.host is None:
            raise CommandError("--host: is missing; it is the number of this machine in --hosts, from 0")
    elif machine.vm is not None and (on_chips or options.asks_metadata):
        addresses = machine.vm.addresses if job.hosts > 1 else ()
    elif on_chips and job.hosts > 1:
        raise CommandError(
            f"--hosts: {job.spec.accelerator} has {job.hosts} hosts, whose addresses this machine's metadata lack: "
            "pass --hosts A,B,… and --host I, or --cpu to rehearse here"
        )
    else:
        addresses = ()
    number = options.host if options.host is not None else machine.vm.host if addresses and machine.vm else 0
    if not addresses and options.host is not None:
        raise CommandError(f"--host: {options.host} needs --hosts, the addresses of all machines in order")
    if addresses and (len(addresses) != job.hosts or not all(addresses)):
        raise CommandError(
            f"--hosts: {','.join(addresses)} are {len(addresses)}; {job.spec.accelerator} with {job.slices} "
            f"slice{'s' if job.slices > 1 else ''} has {job.hosts} hosts"
        )
    if addresses and not 0 <= number < len(addresses):
        raise CommandError(f"--host: {number} is none of 0 to {len(addresses) - 1}")
    return number, addresses


def _worker(job: TpuTrainingJob, options: HostOptions, *, on_chips: bool) -> Placement:
    """The placement of one independent worker of several machines, or of all workers here."""
    if options.hosts is not None:
        raise CommandError("--hosts: independent workers (spec.workers) need no addresses; pass --host I, the worker")
    if options.host is None:
        if on_chips and job.hosts > 1:
            raise CommandError(
                f"--host: is missing; this machine runs one of {job.hosts} workers (spec.workers), numbered from 0; "
                "--cpu rehearses all of them"
            )
        return Placement(on_chips=on_chips)
    if not 0 <= options.host < job.hosts:
        raise CommandError(f"--host: {options.host} is none of 0 to {job.hosts - 1} (spec.workers: {job.hosts})")
    return Placement(on_chips=on_chips, host=options.host)


def _require_same_slice(job: TpuTrainingJob, machine: TpuMachine, *, is_needed: bool) -> None:
    """Raises CommandError if this machine's slice is not the one that the job names."""
    wanted = job.accelerator
    if machine.vm is None:
        if is_needed:
            raise CommandError("--hosts: auto: the metadata of this machine name no TPU slice; list the addresses")
        if (machine.generation, machine.chips) != (wanted.generation, wanted.chips_per_host):
            raise CommandError(
                f"spec.accelerator: a host of {wanted.name} has {counted(wanted.chips_per_host, 'chip')} of "
                f"{wanted.generation}, and this machine has {machine.chips} of {machine.generation}; name its own, or "
                "pass --cpu to rehearse"
            )
        return
    kind = machine.vm.accelerator_type
    try:
        present = parse_accelerator(kind)
    except InvalidField as error:
        raise CommandError(
            f"spec.accelerator: this machine is a {kind}, which tpujob does not know; pass --cpu to rehearse"
        ) from error
    if wanted.is_tpu and (present.generation, present.chips) != (wanted.generation, wanted.chips):
        raise CommandError(
            f"spec.accelerator: {wanted.name} is asked for, and this machine is of a {kind}; write "
            f"`accelerator: {present.name}`, or pass --cpu to rehearse"
        )


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
