"""Waiting for a condition with a deadline: no test sleeps, and every timeout says what was missing."""

import time
from collections.abc import Callable

POLL_SECONDS = 0.05
PATIENCE_SECONDS = 120.0
"""For what happens within seconds on an idle machine: a wait that succeeds costs nothing."""


def wait_for[Result](
    what: str,
    condition: Callable[[], Result | None],
    *,
    timeout_seconds: float = PATIENCE_SECONDS,
    explain: Callable[[], str] | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> Result:
    """The first truthy value of the condition.

    Args:
        what: What is awaited, as the end of "timed out waiting for ...".
        condition: Called until it returns something truthy. What it raises ends the waiting.
        timeout_seconds: Time until giving up.
        explain: Called at the deadline for a description of the state.
        poll_seconds: Between two looks.

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
