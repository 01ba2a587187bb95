"""The pre-flight alone, with one process whose part in the exchange is delayed or altered (FAULT, FAULT_PROCESS)."""

import logging
import os
import sys
import time
from typing import Any

from tpujob_contract import read_environment
from tpujob_trainer.config.schema import PreflightConfig
from tpujob_trainer.distributed import host_check, initialize
from tpujob_trainer.distributed.exit import process_exit
from tpujob_trainer.distributed.exit.stop_request import StopRequest
from tpujob_trainer.session import preflight

DELAY_SECONDS = 30.0
SLOW_SECONDS = 15.0
"""A process that waits for a core of a busy machine is none of a slow host."""
_contribution = preflight.contribution


def _faulty(devices: list[Any]) -> dict[int, Any]:
    mine = _contribution(devices)
    if os.environ["FAULT"] == "delayed":
        time.sleep(DELAY_SECONDS)
    if os.environ["FAULT"] == "altered":
        next(iter(mine.values()))[:] *= 1.5
    return mine


def _check(stop: StopRequest) -> int:
    process = read_environment(os.environ)
    runtime = initialize.start(process, heartbeat_seconds=30, configuration_hash="the same", on_met=stop.joined)
    host_check.SLOW_SECONDS = SLOW_SECONDS
    if os.environ["FAULT_PROCESS"] == str(runtime.process_id):
        preflight.contribution = _faulty
    preflight.check_hosts(runtime, PreflightConfig(bandwidth=True))
    runtime.close()
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    process_exit.run_to_exit(_check, read_environment(os.environ), grace_seconds=20)
