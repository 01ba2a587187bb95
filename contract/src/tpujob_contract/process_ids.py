"""Who is who among the processes of a job: the one place where ids are computed."""

from __future__ import annotations


def num_processes(*, slices: int, hosts_per_slice: int) -> int:
    """Number of JAX processes of a job: one for every host of every slice."""
    return slices * hosts_per_slice


def process_id(*, slice_index: int, host_index: int, hosts_per_slice: int) -> int:
    """Index of a process, dense from 0: slice by slice, and by host within a slice.

    This is the order in which JAX and the TPU runtime count too (jax-ml/jax:jax/_src/clusters/cloud_tpu_cluster.py),
    so that the ids agree with MEGASCALE_SLICE_ID and TPU_WORKER_ID.
    """
    return slice_index * hosts_per_slice + host_index
