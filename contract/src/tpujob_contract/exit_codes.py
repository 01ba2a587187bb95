"""Exit codes of a job's processes, on which the operator's policies are based."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a process ended, for programs that decide what happens next. Each row: number, meaning, whether it is fatal.

    What happens next and what to do is in `tpujob_resource.messages.remedies`, which also has a row for each code.
    """

    meaning: str
    is_fatal: bool
    """Whether another try would end the same way."""

    def __new__(cls, number: int, meaning: str, is_fatal: bool) -> ExitCode:
        """Makes the member of a row."""
        code = int.__new__(cls, number)
        code._value_ = number
        code.meaning = meaning
        code.is_fatal = is_fatal
        return code

    FINISHED = (0, "finished", False)
    TPU_HELD = (69, "another process holds the TPU", False)
    """Another live process holds the TPU; the launcher names it.

    Not 78, because a retry may find the TPU free. Not 75, because on a machine with a stray process retries would never
    end: this code counts as a failure. The number is EX_UNAVAILABLE of sysexits.h.
    """
    STOPPED = (75, "asked to stop; state saved", False)
    """Asked to stop; as much state as possible is saved. The restart does not count against the limit."""
    DIVERGED = (76, "diverged: non-finite loss", True)
    """The loss or the gradient stopped being finite. Never retried."""
    NOT_FOUND = (77, "no permission or not found", True)
    """No permission for, or no such bucket, data set, tokenizer or token. Never retried."""
    CONFIGURATION = (78, "configuration wrong", True)
    """The configuration is wrong. Never retried."""
    STALLED = (79, "stalled: no step for the limit", False)
    """No step within the limit; all stacks were dumped. Counted as a crash."""
    PEERS_MISSING = (80, "peers missing at start", False)
    """Not every process arrived at start; each missing one is named."""
    NO_ATTEMPT_LEFT = (81, "no further attempt in these containers", False)
    """A program ended with a code after which Kubernetes would replace only its pod. The launcher reports that code."""


KILLED = 137
"""The code that Kubernetes and shells report for SIGKILL (128 + 9): out of memory, or the grace period was over."""

KILLED_FROM_OUTSIDE = (137, 139, 135, 143, 130)
"""Death by SIGKILL, SIGSEGV, SIGBUS, SIGTERM and SIGINT, as a shell counts: a program does not choose these."""

REPLACED = (ExitCode.STOPPED, 143, KILLED)
"""Codes of a container that was asked to stop or was killed: if lost pods are replaced, only its pod is."""

FATAL = tuple(code for code in ExitCode if code.is_fatal)
"""Codes after which another try would end the same way."""


def of_replaced_pod(code: int, *, was_asked: bool) -> int:
    """The exit code of a container, from which Kubernetes decides whether to replace only its pod.

    Args:
        code: Of the program.
        was_asked: Whether the container was asked to stop.
    """
    if code == ExitCode.FINISHED or code in FATAL or (code in REPLACED) == was_asked:
        return code
    return 143 if was_asked else ExitCode.NO_ATTEMPT_LEFT


def describe(code: int) -> str:
    """An exit code with its meaning; signals by name, as in "137, killed by SIGKILL"."""
    import signal

    known = {int(each): each.meaning for each in ExitCode}
    if code in known:
        return f"{code}, {known[code]}"
    number = code - 128 if code > 128 else -code
    if number > 0:
        try:
            return f"{code}, killed by {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"{code}, crashed"
