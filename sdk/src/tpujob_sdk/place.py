"""The place of a process in its job: its process, slice and host indexes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tpujob_contract import DistributedProcess, IndependentWorker, read_environment


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
