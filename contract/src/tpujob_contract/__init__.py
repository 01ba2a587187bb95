"""The contract between operator and trainer: a wire protocol that is extended and never changed.

Only the standard library, and Python 3.9 or newer: the launcher runs inside users' images.
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
