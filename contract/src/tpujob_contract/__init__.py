"""What operator and trainer agree on: a wire protocol, in which things are added and never changed.

Standard library only, and every Python from 3.9 on: the launcher runs inside other people's images.
"""

from tpujob_contract.environment import (
    ContractError,
    DistributedProcess,
    IndependentWorker,
    LocalProcess,
    Process,
    read_environment,
)
from tpujob_contract.exit_codes import ExitCode
from tpujob_contract.process_ids import num_processes, process_id

__all__ = [
    "ContractError",
    "DistributedProcess",
    "ExitCode",
    "IndependentWorker",
    "LocalProcess",
    "Process",
    "num_processes",
    "process_id",
    "read_environment",
]
