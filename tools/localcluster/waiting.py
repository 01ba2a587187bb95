"""Waiting for a condition with a deadline: no test sleeps, and each timeout error says what was missing."""

import time
from collections.abc import Callable

POLL_SECONDS = 0.05
PATIENCE_SECONDS = 120.0
"""For conditions that take seconds on an idle machine: a high limit does not slow down waits that succeed."""


def wait_for[Result](
    what: str,
    condition: Callable[[], Result | None],
    *,
    timeout_seconds: float = PATIENCE_SECONDS,
    explain: Callable[[], str] | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> Result:
    """Waits for a condition; returns its first truthy value.

    Args:
        what: The end of the message "timed out waiting for ...".
        condition: Called until it returns a truthy value. Its exceptions end the wait.
        timeout_seconds: The deadline.
        explain: Called at the deadline for a description of the state.
        poll_seconds: Between two calls.

    Raises:
        TimeoutError: The condition did not hold within the time.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() >= deadline:
            explanation = f": {explain()}" if explain else ""
            raise TimeoutError(f"timed out after {timeout_seconds:g} s waiting for {what}{explanation}")
        time.sleep(poll_seconds)
