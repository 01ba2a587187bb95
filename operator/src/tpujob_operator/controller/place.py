"""Creates Workloads for the jobs that MultiKueue runs, and checks at intervals whether Kueue has evicted them."""

import asyncio
import contextlib
import logging

from tpujob_contract import kubernetes_names
from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.place import is_over, place_step
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import PRIORITY_CLASSES, QUEUE_PRIORITY_CLASSES, WORKLOADS, Storage, Target
from tpujob_operator.observe.state import Observed
from tpujob_operator.observe.terminations import Key
from tpujob_operator.observe.workloads import interval_seconds, workloads_of
from tpujob_resource.models.job import queue_priority_class

logger = logging.getLogger(__name__)

OVER_SECONDS = 600.0
"""Between checks once the job is over, or suspended."""

type _Seen = tuple[str, int, bool]
"""A job's uid and generation, and whether it is over."""


class Places:
    """The Workloads of jobs that MultiKueue runs."""

    def __init__(self, storage: Storage, settings: Settings) -> None:
        """Keeps the parts."""
        self._storage = storage
        self._settings = settings
        self._looks: dict[Key, tuple[_Seen, float]] = {}

    def forget(self, key: Key) -> None:
        """Drops a job that is gone."""
        self._looks.pop(key, None)

    async def ask(self, key: Key, observed: Observed) -> float | None:
        """Creates or deletes the job's Workload; returns the seconds until the next check.

        None: MultiKueue does not manage the job, or it has no queue, so nothing is done.

        Raises:
            ApiError: a read or a write failed.
        """
        if observed.other_manager != kubernetes_names.MULTIKUEUE or not observed.spec.queue:
            return None
        now = asyncio.get_running_loop().time()
        seen = (observed.uid, observed.generation, is_over(observed))
        before, due = self._looks.get(key, (None, 0.0))
        if seen == before and now < due:
            return due - now  # other changes of the status that MultiKueue writes need no check
        seconds = await self._look(observed)
        self._looks[key] = (seen, now + seconds)
        return seconds

    async def _look(self, observed: Observed) -> float:
        interval = interval_seconds(observed.namespace, self._looks)
        workloads = await workloads_of(self._storage, observed.namespace, observed.uid)
        if workloads is None:
            logger.warning("No place asked for: %s/%s, Kueue is not installed", observed.namespace, observed.name)
            return interval
        step = place_step(observed, workloads, self._settings, priority=await self._priority(observed))
        if step.problems:
            logger.warning("No place asked for: %s/%s: %s", observed.namespace, observed.name, "; ".join(step.problems))
        for workload in step.delete:
            await self._storage.delete(WORKLOADS[0], Target.same(workload))
            logger.info("Workload deleted: %s/%s", observed.namespace, workload["metadata"]["name"])
        if step.delete:
            return step.pause_seconds
        if step.create is not None:
            with contextlib.suppress(errors.AlreadyExists):
                await self._storage.create(WORKLOADS[0], step.create)
            logger.info("Workload created: %s/%s", observed.namespace, step.create["metadata"]["name"])
        return OVER_SECONDS if observed.spec.suspend or is_over(observed) else interval

    async def _priority(self, observed: Observed) -> int | None:
        of_queue = next(iter(queue_priority_class(observed.manifest["metadata"]).values()), None)
        resource, name = (
            (QUEUE_PRIORITY_CLASSES, of_queue) if of_queue else (PRIORITY_CLASSES, observed.spec.priority_class_name)
        )
        if name is None:
            return None
        try:
            found = await self._storage.get(resource, None, name)
        except errors.Forbidden:
            return None  # an operator for some namespaces may not read cluster-wide objects
        return None if found is None else int(found["value"])
