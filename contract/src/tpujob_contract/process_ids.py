"""Numbers and names of the processes of a job: the only place where ids are computed."""

from typing import Sequence


def num_processes(*, slices: int, hosts_per_slice: int) -> int:
    """Number of JAX processes of a job: one for every host of every slice."""
    return slices * hosts_per_slice


def process_id(*, slice_index: int, host_index: int, hosts_per_slice: int) -> int:
    """Index of a process, dense from 0: slice by slice, and by host within a slice.

    JAX and the TPU runtime count in the same order (jax-ml/jax:jax/_src/clusters/cloud_tpu_cluster.py), so the ids
    agree with MEGASCALE_SLICE_ID and TPU_WORKER_ID.
    """
    return slice_index * hosts_per_slice + host_index


MAX_NAMED = 20
"""The most processes that a message names one by one."""


def process_name(process_id: int, host: str) -> str:
    """The name of a process in messages: "process 3 on host h", without the host if it is not known."""
    return f"process {process_id} on host {host}" if host else f"process {process_id}"


def listed(names: Sequence[str]) -> str:
    """The first `MAX_NAMED` names, and how many more there are."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
