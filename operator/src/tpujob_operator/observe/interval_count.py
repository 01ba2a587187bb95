"""A count for each job, read at intervals, as far as the operator's rights allow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tpujob_operator.kube import errors
from tpujob_operator.observe.missing_rights import MissingRights
from tpujob_operator.observe.terminations import Key

INTERVAL_SECONDS = 30.0
"""Between two reads for one job."""
RIGHTS_INTERVAL_SECONDS = 300.0
"""Until a missing right is tried again."""


class IntervalCount:
    """Keeps the count of each job until the next read is due."""

    def __init__(self, what: str, consequence: str, *, enabled: bool) -> None:
        """`what`, `consequence`: of the required right, as in `MissingRights`; without `enabled` nothing is read."""
        self._enabled = enabled
        self._rights = MissingRights(what, consequence, interval_seconds=RIGHTS_INTERVAL_SECONDS)
        self._seen: dict[Key, tuple[float, int]] = {}

    async def count(self, key: Key, look: Callable[[], Awaitable[int]]) -> int:
        """The result of `look`, or of its last call within the interval; 0: reading is not allowed.

        Raises:
            ApiError: the API server did not answer.
        """
        now = asyncio.get_running_loop().time()
        read_at, found = self._seen.get(key, (float("-inf"), 0))
        if not self._enabled or now - read_at < INTERVAL_SECONDS or self._rights.is_missing(key[0]):
            return found
        try:
            found = await look()
        except errors.Forbidden as error:
            self._rights.note(key[0], error)
            found = 0
        self._seen[key] = (now, found)
        return found

    def forget(self, key: Key) -> None:
        """Drops the count of a job that does not need it any more."""
        self._seen.pop(key, None)
