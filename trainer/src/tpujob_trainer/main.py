"""The trainer process: reads its environment, runs its task, and ends with an exit code of the contract."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

from tpujob_contract import IndependentWorker, environment, read_environment
from tpujob_trainer.config.schema import BLOCK, load_config
from tpujob_trainer.errors import ConfigurationError
from tpujob_trainer.exit import process_exit
from tpujob_trainer.exit.stop_request import StopRequest

LOG_FORMAT = "%(asctime)s %(levelname).1s %(name)s: %(message)s"


def main() -> NoReturn:
    """Does the task that the environment says, and ends the process."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    # Orbax tells each save in forty lines; what matters of it is in ours.
    logging.getLogger("absl").setLevel(logging.WARNING)
    process_exit.run_to_exit(lambda stop: run(os.environ, stop))


def run(environ: Mapping[str, str], stop: StopRequest) -> int:
    """The exit code of the task that the environment asks for.

    Raises:
        ContractError: the environment describes a process in part only.
        ConfigurationError: a field of the `trainer` block is wrong.
    """
    process = read_environment(environ)
    text = environ.get(environment.CONFIG)
    config = load_config(text)
    if config.task == "extract":
        from tpujob_trainer.tasks import extract

        gc.freeze()
        gc.enable()
        return extract.run(process, config, environ, stop)
    if isinstance(process, IndependentWorker):
        raise ConfigurationError(f"{BLOCK}: pretraining needs one job of several hosts; leave out spec.workers")
    # Here and not above: a wrong configuration is told in a moment, jax takes seconds to import.
    from tpujob_trainer.tasks import pretrain

    # The modules are left out of collections, which are off until here: see `__main__`.
    gc.freeze()
    gc.enable()
    return pretrain.run(process, config, environ, stop)
