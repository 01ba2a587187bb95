"""The trainer process: reads its environment, runs its task, and ends with an exit code of the contract."""

from __future__ import annotations

import gc
import os
from typing import NoReturn

from tpujob_contract import ContractError, IndependentWorker, Process, environment, read_environment
from tpujob_contract.reports import termination_message
from tpujob_trainer.config.schema import BLOCK, load_config
from tpujob_trainer.distributed.exit import process_exit
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.telemetry.logs import start_logging


def main() -> NoReturn:
    """Does the task that the environment says, and ends the process."""
    start_logging()
    message_file = termination_message.find(os.environ)
    try:
        process = read_environment(os.environ)
    except ContractError as error:
        refused = error
        grace = environment.DEFAULT_GRACE_SECONDS
        process_exit.run_to_exit(lambda _: _refuse(refused), None, message_file=message_file, grace_seconds=grace)
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    process_exit.run_to_exit(
        lambda stop: run(process, stop, in_pod=in_pod),
        process,
        message_file=message_file,
        grace_seconds=process.grace_seconds,
    )


def run(process: Process, stop: StopRequest, *, in_pod: bool = False) -> int:
    """The exit code of the task that the process is to do.

    Args:
        process: As the environment describes it.
        stop: The request to stop.
        in_pod: Whether other hosts ask for the report; else this machine alone may.

    Raises:
        ConfigurationError: a field of the `trainer` block is wrong.
    """
    config = load_config(process.config)
    if config.task == "probe":
        from tpujob_trainer.tasks import probe

        return probe.run(process)
    if config.task != "pretrain":
        from tpujob_trainer.tasks.batch import job

        gc.freeze()
        gc.enable()
        return job.run(process, config, stop, in_pod=in_pod)
    if isinstance(process, IndependentWorker):
        raise ConfigurationError(f"{BLOCK}: pretraining needs one job of several hosts; leave out spec.workers")
    # Here and not above: a wrong configuration is reported in a moment, jax takes seconds to import.
    from tpujob_trainer.tasks import pretrain

    # The modules are left out of collections, which are off until here: see `__main__`.
    gc.freeze()
    gc.enable()
    return pretrain.run(process, config, stop, in_pod=in_pod)


def _refuse(error: ContractError) -> NoReturn:
    raise error
