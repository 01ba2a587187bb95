"""Becomes the given command, which the kernel ends when the process that started it is gone.

Run as a script: `python -I -S dies_with_parent.py PARENT_PID COMMAND...`. A `preexec_fn` would do the same, but
runs Python between fork and exec, which may deadlock in a parent with threads (and Python warns of it).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h; the setting survives exec


def main(parent_pid: int, command: list[str]) -> None:
    """Arms the signal and executes the command; does not return."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # A parent that died before the line above cannot send the signal any more.
        if os.getppid() != parent_pid:
            sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - replacing this process is the point


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
