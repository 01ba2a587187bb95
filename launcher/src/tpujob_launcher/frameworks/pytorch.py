"""PyTorch and PyTorch/XLA: the variables with which they join a job.

- `init_method="env://"`: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
  (pytorch/pytorch:torch/distributed/rendezvous.py, _env_rendezvous_handler).
- `torchrun`: each of its options as PET_OPTION (pytorch/pytorch:torch/distributed/argparse_util.py).
- PyTorch/XLA: PJRT_DEVICE (pytorch/xla:torch_xla/runtime.py). libtpu reads the hosts of a slice from variables that GKE
  sets in pods on TPU nodes.
"""

from __future__ import annotations

from typing import Dict, Mapping

from tpujob_contract.environment import DistributedProcess


def variables(process: DistributedProcess, environ: Mapping[str, str]) -> Dict[str, str]:
    """The variables that PyTorch needs; `environ` takes precedence for those that can be the same on all hosts."""
    host, _, port = process.coordinator.rpartition(":")
    rank, world_size = str(process.process_id), str(process.num_processes)
    # The coordinator's port is free: it is reserved for JAX.
    port = environ.get("MASTER_PORT", port)
    choices = {
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_PORT": port,
        "PET_MASTER_PORT": port,
        "PJRT_DEVICE": "CPU" if environ.get("JAX_PLATFORMS") == "cpu" else "TPU",
    }
    return {
        **{name: environ.get(name, value) for name, value in choices.items()},
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "MASTER_ADDR": host,
        "PET_NODE_RANK": rank,
        "PET_NNODES": world_size,
        "PET_MASTER_ADDR": host,
    }
