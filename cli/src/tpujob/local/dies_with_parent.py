"""Becomes a command that gets a signal when its parent dies: `python -I -S dies_with_parent.py PARENT SIGNAL COMMAND…`.

A separate program and not a function between fork and exec: code there may find locks held by threads that no longer
exist. The kernel sends the signal when the *thread* that started the process ends.
"""

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h; the setting survives exec


def launcher(number: signal.Signals) -> tuple[str, ...]:
    """The prefix of a command that this process starts, so that the command gets the signal when this process dies."""
    return sys.executable, "-I", "-S", __file__, str(os.getpid()), str(int(number))


if __name__ == "__main__":
    parent, number, *command = sys.argv[1:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))
        # A parent that died before the line above sends no signal.
        if os.getppid() != int(parent):
            sys.exit(128 + signal.Signals(int(number)))
    os.execvp(command[0], command)  # noqa: S606 - an argument list, no shell
