"""Reads that the operator's rights may not allow, because its image is newer than its chart.

A missing right is logged once and retried at intervals; counts for each job are read at intervals, too.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tpujob_operator.kube import errors
from tpujob_operator.kube.errors import Forbidden
from tpujob_operator.observe.terminations import Key

logger = logging.getLogger(__name__)


class MissingRights:
    """The namespaces in which one kind of object may not be read."""

    def __init__(self, what: str, consequence: str, *, interval_seconds: float) -> None:
        """Describes the right.

        Args:
            what: The kind, in the plural.
            consequence: What the operator cannot do without it.
            interval_seconds: Until the right is tried again; it may have been granted.
        """
        self._what = what
        self._consequence = consequence
        self._interval = interval_seconds
        self._noted_at: dict[str, float] = {}

    def is_missing(self, namespace: str) -> bool:
        """Whether a read would be refused, as far as is known."""
        noted = self._noted_at.get(namespace)
        return noted is not None and asyncio.get_running_loop().time() - noted < self._interval

    def note(self, namespace: str, error: Forbidden) -> None:
        """Records a refused read; the first one in a namespace is logged as a warning."""
        if namespace not in self._noted_at:
            logger.warning(
                "No right to read %s in namespace %s, so %s; install the chart of this version, which grants it: %s",
                self._what,
                namespace,
                self._consequence,
                error,
            )
        self._noted_at[namespace] = asyncio.get_running_loop().time()


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

    async def read(self, key: Key, look: Callable[[], Awaitable[int]]) -> int:
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
