"""Runs a training loop, from the start of the process to its exit code."""

import dataclasses
import multiprocessing
import os
from collections.abc import Callable

from tpujob_contract import ExitCode, IndependentWorker, environment, read_environment
from tpujob_sdk.job import Job
from tpujob_sdk.options import Options
from tpujob_sdk.place import place
from tpujob_trainer.distributed.exit import process_exit
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.session.session import Session
from tpujob_trainer.values.errors import ConfigurationError
from tpujob_trainer.values.programs import start_logging

_DEFAULTS = Options()


def run(train: Callable[[Job], None], options: Options = _DEFAULTS) -> None:
    """Connects to the other processes, trains, and ends this process with the exit code of the contract.

    0 when `train` returns, 75 when it returns after `Job.stop_requested` returned True, and the error's code otherwise.
    This initializes JAX: do not call `jax.distributed.initialize`. Outside of a job there is one process.
    It returns at once in a process of `samples.map`, which imports the program for its functions.

    Args:
        train: The loop; the same on all processes.
        options: See `Options`.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        return
    # Orbax imports absl, which has installed its handler at the root logger already.
    start_logging(force=True)
    process = read_environment(os.environ)
    process_exit.run_to_exit(lambda stop: _run(train, options, stop), process, grace_seconds=process.grace_seconds)


def _run(train: Callable[[Job], None], options: Options, stop: StopRequest) -> int:
    process = read_environment(os.environ)
    if isinstance(process, IndependentWorker):
        raise ConfigurationError(
            "spec.workers: tpujob_sdk.run is for processes that train together; independent workers find their number "
            f"in {environment.WORKER}"
        )
    options.require_own_decisions()
    process = dataclasses.replace(process, checkpoint_dir=process.checkpoint_dir or options.checkpoint_dir)
    session = Session.start(process, options, stop, in_pod="KUBERNETES_SERVICE_HOST" in os.environ)
    job = Job(session, place(), options)
    train(job)
    # Hosts are not asked to stop at the same time: one that left early would end the others, and the last save.
    job.close()
    stop.left_loop()
    session.end()
    return ExitCode.STOPPED if job.was_stopped else ExitCode.FINISHED
