"""Waits until the TPU of this machine is free."""

from __future__ import annotations

import logging
import signal
import time
from typing import Callable, Mapping

from tpujob_contract.environment import Process
from tpujob_contract.exit_codes import ExitCode
from tpujob_launcher.child.outcome import Refused
from tpujob_launcher.child.signals import STOP, SignalQueue
from tpujob_launcher.tpu.holders import TpuFiles, find_holders, wants_whole_tpu

logger = logging.getLogger(__name__)


def wait_for_tpu(
    environ: Mapping[str, str],
    process: Process,
    tpu: TpuFiles,
    signals: SignalQueue,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Returns once no other process holds the TPU; calls `meanwhile` repeatedly.

    Waits at most a grace period, which is enough for a holder that is ending, and at most `startup_seconds`, after
    which the other processes do not wait for this one.

    Raises:
        Refused: It is still held then, or this process is asked to stop.
    """
    if not wants_whole_tpu(environ):
        return
    limit = min(process.grace_seconds, process.startup_seconds)
    deadline = time.monotonic() + limit
    is_told = False
    while True:
        holders = "; ".join(map(str, find_holders(tpu)))
        if not holders:
            return
        if time.monotonic() >= deadline:
            raise Refused(
                ExitCode.TPU_HELD, f"the TPU is in use: {holders}, still after {limit} s; end it, or use another host"
            )
        if not is_told:
            logger.warning("the TPU is in use: %s; waiting up to %d s", holders, limit)
            is_told = True
        meanwhile()
        for number in signals.wait(min(0.5, max(0.0, deadline - time.monotonic()))):
            if number in STOP:
                name = signal.Signals(number).name
                raise Refused(ExitCode.STOPPED, f"told to stop by {name} before anything was started; {holders}")
