"""What happens to one process, from outside it.

A process raises an exception, or takes memory until it is killed, when it gets a signal: every Python program of a job
has the two handlers, by a `sitecustomize` on its PYTHONPATH. Python calls them after the step that runs, and memory
takes its time to fill, so that they log when the fault happens: `happened` finds it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

SITECUSTOMIZE = """
import os, signal, time

def _log():
    os.write(2, f"fault at {time.time():.3f}\\n".encode())

def _raise(number, frame):
    _log()
    raise RuntimeError("a fault on purpose")

def _take_memory(number, frame):
    taken = []
    while True:
        taken.append(bytearray(b"1") * 2**24)
        _log()

signal.signal(signal.SIGUSR1, _raise)
signal.signal(signal.SIGUSR2, _take_memory)
"""

SIGNALS = {
    "exception": signal.SIGUSR1,
    "kill -9": signal.SIGKILL,
    "freeze": signal.SIGSTOP,
    "OOM kill": signal.SIGUSR2,
}
OF_POD, OF_NODE = "deleted pod", "lost node"
FAULTS = (*SIGNALS, OF_POD, OF_NODE)

STRIKE = """
import os, time
def parent(process):
    return open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[1]
(child,) = [each for each in os.listdir("/proc") if each.isdigit() and each != "1" and parent(each) == "1"]
print(time.time())
os.kill(int(child), NUMBER)
"""
"""Run in a container, it signals the program there, which is the child of process 1, and prints when it did."""

HAPPENED = re.compile(r"fault at (\d+\.\d+)$")


def happened(lines: Iterable[str], signalled: float) -> float:
    """When a fault happened, in Unix seconds: an exception raised, or the last memory taken; other faults at once.

    Args:
        lines: The log of the process that has it.
        signalled: When it was sent the signal, in Unix seconds.
    """
    found = filter(None, map(HAPPENED.search, lines))
    return max((float(match[1]) for match in found), default=signalled)
