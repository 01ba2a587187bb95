"""Retries of requests to a server that does not answer.

A first start fails within seconds: the user is still there, and the address may be wrong. A restart had that code
before, and each failed attempt counts against the job's limit: it waits about ten minutes, less than the default
`spec.startupSeconds` of its peers.
"""

import sys
import time
from typing import Callable, Mapping, TypeVar

from tpujob_contract.environment import ATTEMPT

Answer = TypeVar("Answer")

TIMES = 5
TIMES_OF_A_RESTART = 23
LONGEST_PAUSE_SECONDS = 30.0


class Unanswered(OSError):  # noqa: N818 - no error yet
    """A server is unreachable, or answers with a server error: a retry may help."""


def times_of(environ: Mapping[str, str]) -> int:
    """The number of tries for the attempt that this pod belongs to."""
    attempt = environ.get(ATTEMPT, "")
    return TIMES_OF_A_RESTART if attempt.isdigit() and int(attempt) > 0 else TIMES


def asked(ask: Callable[[], Answer], times: int, *, pause_seconds: float = 1.0) -> Answer:  # noqa: UP047 - Python 3.9
    """The result of `ask`, which is called up to `times` times; pauses double, up to `LONGEST_PAUSE_SECONDS`.

    Raises:
        OSError: `ask` raised `Unanswered` each time.
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
