"""Where a process stands in its job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tpujob_contract import DistributedProcess, IndependentWorker, read_environment


@dataclass(frozen=True, kw_only=True)
class Place:
    """From the environment alone: JAX need not have started."""

    process: int = 0
    """Index of this process, or worker, from 0."""
    processes: int = 1
    slice: int = 0
    """Index of its slice, from 0."""
    slices: int = 1
    host: int = 0
    """Index of its host within the slice, from 0."""
    hosts_per_slice: int = 1
    chips_per_host: int = 0
    """TPU chips, or CPU devices of a `cpu:` accelerator; 0: as many as there are."""

    @property
    def is_lead(self) -> bool:
        """Whether this is process 0, which writes small files and speaks for the run."""
        return self.process == 0


def place(environ: Mapping[str, str] = os.environ) -> Place:
    """The place of this process; one on its own outside of a job.

    Raises:
        ContractError: the environment is neither that of a job's process nor free of it.
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
