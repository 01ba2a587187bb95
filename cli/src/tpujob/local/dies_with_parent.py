"""`python dies_with_parent.py PARENT COMMAND…`: becomes the command, which gets SIGTERM when its parent dies.

A file of its own and not a function between fork and exec: code there may find locks held by threads that are gone.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit(128 + signal.SIGTERM)
    os.execvp(command[0], command)  # noqa: S606 - an argument list, no shell
