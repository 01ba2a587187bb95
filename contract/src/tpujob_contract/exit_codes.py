"""Exit codes of a job's processes; the operator's policies are written in them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a process ended, for programs that decide what happens next."""

    FINISHED = 0
    TPU_HELD = 69
    """Another live process holds the TPU; the launcher names it.

    Not 78, for a retry may find it free; not 75, for on a machine with a stray process that would go round for ever: it
    is charged. The number is EX_UNAVAILABLE of sysexits.h.
    """
    STOPPED = 75
    """Asked to stop; what could be saved is saved. Restarted without charge."""
    DIVERGED = 76
    """The loss or the gradient stopped being finite. Never retried."""
    NOT_FOUND = 77
    """No permission, or not there: bucket, data set, tokenizer, token. Never retried."""
    CONFIGURATION = 78
    """The configuration is wrong. Never retried."""
    STALLED = 79
    """No step within the limit; all stacks were dumped. Charged as a crash."""
    PEERS_MISSING = 80
    """Not every process arrived at start; each missing one is named."""


KILLED = 137
"""What Kubernetes and shells report for SIGKILL (128 + 9): out of memory, or the grace period was over."""

FATAL = (ExitCode.DIVERGED, ExitCode.NOT_FOUND, ExitCode.CONFIGURATION)
"""Codes after which another try would end the same way."""

MEANINGS = {
    ExitCode.FINISHED: "finished",
    ExitCode.TPU_HELD: "another process holds the TPU",
    ExitCode.STOPPED: "asked to stop; state saved",
    ExitCode.DIVERGED: "diverged: non-finite loss",
    ExitCode.NOT_FOUND: "no permission or not found",
    ExitCode.CONFIGURATION: "configuration wrong",
    ExitCode.STALLED: "stalled: no step for the limit",
    ExitCode.PEERS_MISSING: "peers missing at start",
}


def describe(code: int) -> str:
    """What an exit code says, in words; signals by name, as in "137, killed by SIGKILL"."""
    import signal

    if code in MEANINGS:
        return f"{code}, {MEANINGS[ExitCode(code)]}"
    number = code - 128 if code > 128 else -code
    if number > 0:
        try:
            return f"{code}, killed by {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"{code}, crashed"
