"""The place of a process in its job, and a list of items split over the processes."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpujob_contract import DistributedProcess, IndependentWorker, read_environment
from tpujob_trainer.distributed.kv_store import Coordination
from tpujob_trainer.values.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of a process; it is read from the environment, so JAX need not be initialized."""

    process: int = 0
    """Index of this process or worker, from 0."""
    processes: int = 1
    slice: int = 0
    """Index of its slice, from 0."""
    slices: int = 1
    host: int = 0
    """Index of its host within the slice, from 0."""
    hosts_per_slice: int = 1
    chips_per_host: int = 0
    """TPU chips, or CPU devices of a `cpu:` accelerator; 0: all that the host has."""

    @property
    def is_lead(self) -> bool:
        """Whether this is process 0, which writes small files and reports for the run."""
        return self.process == 0


def place(environ: Mapping[str, str] = os.environ) -> Place:
    """The place of this process; outside of a job, that of a single process.

    Raises:
        ContractError: the environment has only some of the variables of a job's process, or wrong ones.
    """
    process = read_environment(environ)
    if isinstance(process, DistributedProcess):
        return Place(
            process=process.process_id,
            processes=process.num_processes,
            slice=process.slice_index,
            slices=process.slices,
            host=process.host_index,
            hosts_per_slice=process.hosts_per_slice,
            chips_per_host=process.chips_per_host,
        )
    if isinstance(process, IndependentWorker):
        return Place(process=process.worker, processes=process.workers, chips_per_host=process.chips_per_host)
    return Place()


LIMIT_SECONDS = 60.0


def own_part[T](items: Sequence[T], coordination: Coordination, name: str) -> list[T]:
    """Every n-th item of n processes, from the process's index on; all processes must call this, with a new name.

    Raises:
        ConfigurationError: process 0 has different items, or there are fewer items than processes.
    """
    count, digest = len(items), hashlib.blake2b(repr(items).encode(), digest_size=8).hexdigest()
    problem = None
    if count < coordination.num_processes:
        problem = f"{count} items for {coordination.num_processes} processes; split smaller parts, as files or indexes"
    of_lead = coordination.lead_decides(name, lambda: [count, digest], limit_seconds=LIMIT_SECONDS)
    if of_lead != [count, digest]:
        problem = f"process 0 has {of_lead[0]} items, this process {count} other ones; sort them: sorted(glob(…))"
    if problem is not None:
        raise ConfigurationError(f"job.split: {problem}")
    return list(items[coordination.process_id :: coordination.num_processes])
