"""The process tree below this one, on Linux: adopt its orphans, list it, reap it, tie it to our own life.

Elsewhere (a laptop with macOS) there is no such control: `descendants` is empty there, and the child's process group is
all that can be ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Dict, List, Set

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on processes below this one whose parent ends become its children, as they do for process 1."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent_pid: int) -> None:
    """Called by a new child: the kernel kills it as soon as its parent is gone, even by SIGKILL.

    The limits of this: it is forgotten when a set-user-id program is executed, and it holds for the child alone, not
    for what the child starts. In a container nothing escapes, for the end of process 1 is the end of all.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent died before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def descendants(pid: int, proc: Path = Path("/proc")) -> List[int]:
    """All living processes below `pid`, whatever their group or session; zombies do not count."""
    children: Dict[int, List[int]] = {}
    ended: Set[int] = set()
    for entry in proc.glob("[0-9]*"):
        try:
            # pid (name) state parent ...; the name may itself hold blanks and parentheses.
            state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # gone meanwhile
        children.setdefault(int(parent), []).append(int(entry.name))
        if state in (b"Z", b"X"):
            ended.add(int(entry.name))
    found: List[int] = []
    to_visit = [pid]
    while to_visit:
        below = children.get(to_visit.pop(), [])
        found += below
        to_visit += below
    return [p for p in found if p not in ended]


def is_stopped(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether a signal (SIGSTOP, SIGTSTP) has stopped a process."""
    try:
        return (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"
    except (OSError, IndexError):
        return False


def reap() -> Dict[int, int]:
    """Every child that has ended, with its exit code as a shell counts it: 128 + n for death by signal n."""
    collected: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return collected
        if pid == 0:
            return collected
        code = os.waitstatus_to_exitcode(status)
        collected[pid] = code if code >= 0 else 128 - code


def command_line(pid: int, proc: Path = Path("/proc")) -> str:
    """The command line of a process on one line of at most 200 characters; empty when it cannot be read."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(" ".join(w.decode(errors="replace").split()) for w in words).strip()[:200]


def send(pid: int, number: int, *, group: bool = False) -> None:
    """Sends a signal to a process or, with `group`, to the group that it leads; that it is gone is not an error."""
    # Permission: a set-user-id program, which this user may not end. The caller's deadline deals with it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, number)


def _prctl(option: int, argument: int) -> None:
    if sys.platform != "linux":
        return
    try:
        import ctypes
    except ImportError:  # a Python built without libffi; process 1 adopts orphans and takes all with it even so
        return
    ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)
