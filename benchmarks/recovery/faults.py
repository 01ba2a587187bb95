"""Faults that are injected into one process from outside it.

On a signal, a process raises an exception, or allocates memory until it is killed: every Python program of a job has
the two handlers, from a `sitecustomize` on its PYTHONPATH. Python calls a handler only after the current step, and it
takes time to fill the memory, so the handlers log the time of the fault, which `happened` finds.
"""

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
"""A program that runs in a container, sends a signal to the child of process 1, and prints the time of that."""

HAPPENED = re.compile(r"fault at (\d+\.\d+)$")


def happened(lines: Iterable[str], signalled: float) -> float:
    """The time of a fault, in Unix seconds: of the exception or the last allocation, or `signalled` for other faults.

    Args:
        lines: The log of the process with the fault.
        signalled: The time of the signal, in Unix seconds.
    """
    found = filter(None, map(HAPPENED.search, lines))
    return max((float(match[1]) for match in found), default=signalled)
