"""How often a server is asked again that does not answer.

A first start fails within seconds: who submitted the job is there, and the address may be wrong. A restart has had that
code before, and its job pays for each attempt that fails: it waits about ten minutes, less than `spec.startupSeconds`
of its peers is by default.
"""

from __future__ import annotations

import sys
import time
from typing import Callable, Mapping, TypeVar

from tpujob_contract.environment import ATTEMPT

Answer = TypeVar("Answer")

TIMES = 5
TIMES_OF_A_RESTART = 23
LONGEST_PAUSE_SECONDS = 30.0


class Unanswered(OSError):  # noqa: N818 - no error yet
    """A server is out of reach, or answers with an error of its own: another try may help."""


def times_of(environ: Mapping[str, str]) -> int:
    """How often a server is asked, by the attempt that this pod belongs to."""
    attempt = environ.get(ATTEMPT, "")
    return TIMES_OF_A_RESTART if attempt.isdigit() and int(attempt) > 0 else TIMES


def asked(ask: Callable[[], Answer], times: int, *, pause_seconds: float = 1.0) -> Answer:  # noqa: UP047 - Python 3.9
    """What `ask` returns, at most so many times; pauses double from one to the next, up to `LONGEST_PAUSE_SECONDS`.

    Raises:
        OSError: `ask` raised `Unanswered` every time.
    """
    number = 1
    while True:
        try:
            return ask()
        except Unanswered as error:
            if number == times:
                raise OSError(f"{error}; asked {times} times") from error
            pause = min(pause_seconds * 2 ** (number - 1), LONGEST_PAUSE_SECONDS)
            sys.stderr.write(f"tpujob code: {error}; asked {number} of {times} times, again in {pause:g} s\n")
            sys.stderr.flush()
        time.sleep(pause)
        number += 1
