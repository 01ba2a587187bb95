"""Waiting as all tests do, but with fewer looks: here the jobs need the processor more."""

from collections.abc import Callable

from tools.localcluster import waiting

POLL_SECONDS = 0.25


def wait_for[Result](
    what: str,
    condition: Callable[[], Result | None],
    *,
    timeout_seconds: float = 30,
    explain: Callable[[], str] | None = None,
) -> Result:
    """The first truthy value of the condition, as `tools.localcluster.waiting` has it."""
    return waiting.wait_for(
        what, condition, timeout_seconds=timeout_seconds, explain=explain, poll_seconds=POLL_SECONDS
    )
