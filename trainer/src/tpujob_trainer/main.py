"""The trainer process: reads its environment, runs its task, and ends with an exit code of the contract."""

import gc
import os
from typing import NoReturn

from tpujob_contract import ContractError, IndependentWorker, Process, environment, read_environment
from tpujob_trainer.config.schema import BLOCK, load_config
from tpujob_trainer.distributed.exit import process_exit
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.programs import start_logging


def main() -> NoReturn:
    """Runs the task that the environment describes, and ends the process."""
    start_logging()
    try:
        process = read_environment(os.environ)
        os.environ.pop(environment.SECRET, None)  # nothing that the trainer starts needs it
    except ContractError as error:
        refused = error
        process_exit.run_to_exit(lambda _: _refuse(refused), None, grace_seconds=environment.DEFAULT_GRACE_SECONDS)
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    process_exit.run_to_exit(
        lambda stop: run(process, stop, in_pod=in_pod), process, grace_seconds=process.grace_seconds
    )


def run(process: Process, stop: StopRequest, *, in_pod: bool = False) -> int:
    """Runs the task of this process; returns the exit code.

    Args:
        process: As the environment describes it.
        stop: The request to stop.
        in_pod: Whether other hosts may request the report; otherwise only this machine may.

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
    # Not imported at the top: a wrong configuration is reported at once, and jax takes seconds to import.
    from tpujob_trainer.tasks import pretrain

    # The modules are left out of garbage collection, which is off until here: see `__main__`.
    gc.freeze()
    gc.enable()
    return pretrain.run(process, config, stop, in_pod=in_pod)


def _refuse(error: ContractError) -> NoReturn:
    raise error
