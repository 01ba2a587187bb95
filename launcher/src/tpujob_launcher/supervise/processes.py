"""The process tree below this process, on Linux: adopts its orphans, lists it, reaps it, and ends it with this process.

Elsewhere (a laptop with macOS) that is not possible: `descendants` is empty there, and only the child's process group
can be ended.
"""

import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import Callable, Dict, List, Set, Tuple

from tpujob_launcher.supervise.signals import STOP, SignalQueue

logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
KILLED_SECONDS = 1.0
"""How long a killed process may take to disappear. If it takes longer, it hangs in a driver, where no signal helps."""


def adopt_orphans() -> None:
    """Makes descendants whose parent ends children of this process, as they become for process 1."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with(parent_pid: int) -> None:
    """Makes the kernel kill this process, a new child, as soon as its parent is gone, even by SIGKILL.

    Limits: the setting is lost when a set-user-ID program is executed, and processes that the child starts do not
    inherit it. In a container no process escapes, because the end of process 1 ends all others.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the parent died before the line above
        os.kill(os.getpid(), signal.SIGKILL)


def descendants(pid: int) -> List[int]:
    """All live processes below `pid`, in any group or session; zombies do not count."""
    children: Dict[int, List[int]] = {}
    ended: Set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # pid (name) state parent ...; the name may itself contain blanks and parentheses.
            state, parent = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue  # it has ended
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
    """Reaps all children that have ended; returns their exit codes as a shell counts: 128 + n for death by signal n."""
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
    """The command line of a process, as one line of at most 200 characters; empty if it cannot be read."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return " ".join(" ".join(w.decode(errors="replace").split()) for w in words).strip()[:200]


def send(pid: int, number: int, *, group: bool = False) -> None:
    """Sends a signal to a process or, with `group`, to the group that it leads; it is not an error if it is gone."""
    # Permission: this user may not end a set-user-ID program. The caller's deadline handles that.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        (os.killpg if group else os.kill)(pid, number)


def _prctl(option: int, argument: int) -> None:
    if sys.platform != "linux":
        return
    try:
        import ctypes
    except ImportError:  # a Python built without libffi; process 1 adopts orphans and ends all processes even so
        return
    ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


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
