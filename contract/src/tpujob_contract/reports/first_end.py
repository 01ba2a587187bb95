"""The one judgement of who failed first, from the ends of a job's processes. Pure.

Launcher 0, `tpujob run` and the operator know different things about an end; each states what it knows. In this order:

1. An exit code after which another try would end the same way (76 to 78) is the reason, whatever its time.
2. A process that was asked to stop follows from the request, unless it is known to have failed, or stopped, before.
3. A process whose message names another one as its cause follows from that one.
4. The earliest end. Times come from the clocks of several hosts: if these differ by more than the ends do, the wrong
   process is named, and nothing else changes.
"""

from dataclasses import dataclass
from typing import Callable, Iterable, Tuple, TypeVar

from tpujob_contract.exit_codes import FATAL, KILLED_FROM_OUTSIDE, ExitCode

NOTICED_LATE_SECONDS = 2.0
"""How much later than the errors of its peers a death from outside, or a program that asks for another start and ends
after its exit handlers, may be noticed and still be their cause, on a busy machine."""
LOST_LATE_SECONDS = 30.0
"""The same for the loss of a pod: a dead machine is noticed only after this silence."""
ALMOST_A_SECOND = 0.999999

T = TypeVar("T")


@dataclass(frozen=True)
class ProcessEnd:
    """What is known about the end of a process that did not finish."""

    code: int
    """As a shell counts it."""
    at: float
    """When its program failed or stopped, or else when its process ended; Unix time on its host."""
    names_another: bool = False
    """Whether its message names another process as the cause of its end."""
    was_asked: bool = False
    """Whether it was asked to stop before its process ended."""
    is_own_time: bool = False
    """Whether `at` is when its program failed or stopped by its own account, which may be before it was asked."""
    is_lost: bool = False
    """Whether its pod is gone: it left no word, and others noticed."""
    is_cut: bool = False
    """Whether `at` is cut to the second, as Kubernetes does."""


def first_of(ends: Iterable[T], known: Callable[[T], ProcessEnd]) -> T:  # noqa: UP047 - new in 3.12
    """The end from which the others follow; of equals, the one that is given first.

    Args:
        ends: At least one, of one attempt.
        known: Returns what is known about an end.
    """
    return min(ends, key=lambda end: _rank(known(end)))


def _rank(end: ProcessEnd) -> Tuple[bool, bool, bool, float]:
    # A stall names the process that is behind the others, which is not an end of that process.
    is_echo = end.names_another and end.code != ExitCode.STALLED
    follows_a_request = end.was_asked and not end.is_own_time
    return end.code not in FATAL, follows_a_request, is_echo, end.at - _seconds_late(end)


def _seconds_late(end: ProcessEnd) -> float:
    if end.is_lost:
        return LOST_LATE_SECONDS
    if not end.was_asked and end.code in (*KILLED_FROM_OUTSIDE, ExitCode.STOPPED):
        return NOTICED_LATE_SECONDS
    # Within one second, a code of its own comes first: programs leave with 1 when they lose a peer.
    return -ALMOST_A_SECOND if end.is_cut and end.code == 1 else 0.0
