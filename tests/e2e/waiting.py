"""Waiting as all tests do, but with fewer looks: here the jobs need the processor more."""

import os
from collections.abc import Callable

from tools.localcluster import waiting

PATIENCE = float(os.environ.get("E2E_PATIENCE") or 1)
"""How many times as long as two cores of its own a busier machine may take."""
PATIENCE_SECONDS = 150 * PATIENCE
"""Two processes start, meet and compile within it."""
POLL_SECONDS = 0.25


def wait_for[Result](
    what: str,
    condition: Callable[[], Result | None],
    *,
    timeout_seconds: float = PATIENCE_SECONDS,
    explain: Callable[[], str] | None = None,
) -> Result:
    """The first truthy value of the condition, as `tools.localcluster.waiting` has it."""
    return waiting.wait_for(
        what, condition, timeout_seconds=timeout_seconds, explain=explain, poll_seconds=POLL_SECONDS
    )
