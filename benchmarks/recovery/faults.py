"""What happens to one process, from outside it.

A process raises an exception, or takes memory until it is killed, when it gets a signal: every Python program of a job
has the two handlers, by a `sitecustomize` on its PYTHONPATH.
"""

from __future__ import annotations

import signal

SITECUSTOMIZE = """
import signal

def _raise(number, frame):
    raise RuntimeError("a fault on purpose")

def _take_memory(number, frame):
    taken = []
    while True:
        taken.append(bytearray(b"1") * 2**24)

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
