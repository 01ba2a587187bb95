"""Ends the processes that a program has left behind."""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import Callable, Dict, List, Set, Tuple

from tpujob_launcher.child.processes import command_line, descendants, reap, send
from tpujob_launcher.child.signals import STOP, SignalQueue

logger = logging.getLogger(__name__)

KILLED_SECONDS = 1.0
"""How long a killed process may take to disappear. If it takes longer, it hangs in a driver, where no signal helps."""


def end_leftovers(
    signals: SignalQueue, seconds: float, meanwhile: Callable[[], None]
) -> Tuple[Tuple[str, ...], List[int]]:
    """Ends all processes below this one: asks them at once, and kills them after `seconds`.

    Returns:
        Lines about those that were killed, and the stop signals that this process received.
    """
    stops: List[int] = []
    asked: Set[int] = set()
    killed: Dict[int, str] = {}
    deadline = time.monotonic() + seconds
    while True:
        reap()
        alive = descendants(os.getpid())
        if not alive or time.monotonic() > deadline + KILLED_SECONDS:
            break
        for pid in alive:
            if time.monotonic() >= deadline:
                killed.setdefault(pid, command_line(pid))
                send(pid, signal.SIGKILL)
            elif pid not in asked:
                asked.add(pid)
                send(pid, signal.SIGTERM)
        meanwhile()
        # Only the end of our own children is signaled, so poll.
        stops += [number for number in signals.wait(0.02) if number in STOP]
    for pid in alive:
        logger.error("process %d (%s) cannot be killed", pid, command_line(pid))
    return tuple(f"left behind and killed: process {pid} ({command})" for pid, command in killed.items()), stops
