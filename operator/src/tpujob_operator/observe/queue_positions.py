"""The positions of jobs in their queues, in the order in which Kueue tries them.

Kueue serves that order as a separate API (https://kueue.sigs.k8s.io/docs/tasks/manage/monitor_pending_workloads/): one
list of a LocalQueue serves all of its jobs. Positions are not computed from Workloads: the order also depends on fair
sharing, and Workloads of other namespaces may not be readable.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from tpujob_operator.kube import errors
from tpujob_operator.kube.client import LOCAL_QUEUES, Storage, first_served
from tpujob_operator.kube.requests import Object, Resource
from tpujob_operator.observe.missing_rights import MissingRights
from tpujob_operator.observe.state import QueuePosition
from tpujob_operator.observe.terminations import Key

INTERVAL_SECONDS = 15.0
"""Between reads of one queue."""
UNSERVED_SECONDS = 300.0
"""Until the next read of a queue that Kueue does not know, or whose order it does not serve."""
MOST_LISTED = 1000
"""Most Workloads of one queue that are read; others count as directly behind the last of them."""

logger = logging.getLogger(__name__)


class QueuePositions:
    """Reads the pending Workloads of LocalQueues, each list once for all calls within an interval."""

    def __init__(self, storage: Storage) -> None:
        """Reads from `storage`."""
        self._storage = storage
        self._rights = MissingRights(
            "localqueues/pendingworkloads.visibility.kueue.x-k8s.io",
            "the position of a job in its queue is not told",
            interval_seconds=UNSERVED_SECONDS,
        )
        self._locks: dict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._read: dict[Key, tuple[float, Mapping[str, QueuePosition]]] = {}

    async def of(self, namespace: str, queue: str, workload: str) -> QueuePosition | None:
        """How many Workloads are tried before this one; None: Kueue does not report it.

        Args:
            namespace: Of the queue and of the Workload.
            queue: Name of the LocalQueue.
            workload: Name of the Workload.
        """
        positions = await self._positions((namespace, queue))
        found = positions.get(workload)
        return _behind(positions) if found is None and len(positions) >= MOST_LISTED else found

    async def _positions(self, key: Key) -> Mapping[str, QueuePosition]:
        async with self._locks[key]:
            now = asyncio.get_running_loop().time()
            due, positions = self._read.get(key, (0.0, {}))
            if now >= due and not self._rights.is_missing(key[0]):
                interval, positions = await self._look(key)
                self._read[key] = (now + interval, positions)
            return positions

    async def _look(self, key: Key) -> tuple[float, Mapping[str, QueuePosition]]:
        """Seconds until the next read, and the positions; errors are only logged, and do not fail the reconcile."""

        async def pending(resource: Resource) -> Object | None:
            return await self._storage.get(resource, *key, "pendingworkloads", query={"limit": str(MOST_LISTED)})

        try:
            found = await first_served(LOCAL_QUEUES, pending)
        except errors.Forbidden as error:
            self._rights.note(key[0], error)
            return UNSERVED_SECONDS, {}
        except errors.ApiError as error:
            logger.warning("The order of queue %s/%s cannot be read: %s", *key, error)
            return UNSERVED_SECONDS, {}
        return (UNSERVED_SECONDS, {}) if found is None else (INTERVAL_SECONDS, _parsed(found.get("items") or []))


def _parsed(items: list[Any]) -> Mapping[str, QueuePosition]:
    """The positions by the names of the Workloads (kubernetes-sigs/kueue:apis/visibility/v1beta2/types.go)."""
    return {
        item["metadata"]["name"]: QueuePosition(
            ahead=item["positionInClusterQueue"], ahead_in_queue=item["positionInLocalQueue"]
        )
        for item in items
    }


def _behind(positions: Mapping[str, QueuePosition]) -> QueuePosition:
    last = max(positions.values(), key=lambda position: position.ahead)
    return QueuePosition(ahead=last.ahead + 1, ahead_in_queue=last.ahead_in_queue + 1)
