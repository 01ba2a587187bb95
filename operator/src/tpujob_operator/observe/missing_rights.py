"""Rights that this operator lacks because its image is newer than its chart: logged once, and retried at intervals."""

from __future__ import annotations

import asyncio
import logging

from tpujob_operator.kube.errors import Forbidden

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
