"""Looks at every job from time to time although nothing was heard of it: the net under the watches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable

from tpujob_contract import kubernetes_names
from tpujob_operator.api.conditions import TERMINAL
from tpujob_operator.controller.job_gauges import JobFacts, JobGauges
from tpujob_operator.controller.watch_staleness import WatchStaleness
from tpujob_operator.controller.work_queue import backoff_seconds
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import Object, Storage
from tpujob_operator.observe.terminations import Evidence, Key
from tpujob_operator.settings import Settings

logger = logging.getLogger(__name__)

LONGEST_RETRY_SECONDS = 30.0
SPREAD_SECONDS_PER_JOB = 0.02
_random = random.SystemRandom()


class Resync:
    """Lists jobs and JobSets at start and then every `resync_seconds`, give or take a tenth."""

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        *,
        add: Callable[[Key, float], None],
        staleness: WatchStaleness,
        jobs: JobGauges,
        evidence: Evidence,
    ) -> None:
        """Keeps the parts.

        Args:
            storage: Lists.
            settings: Which namespaces, how often.
            add: Asks for a reconcile of a job, in some seconds.
            staleness: Told what was listed.
            jobs: Told which jobs there are, for the metrics.
            evidence: Told the same, to forget what is gone.
        """
        self._storage = storage
        self._settings = settings
        self._add = add
        self._staleness = staleness
        self._jobs = jobs
        self._evidence = evidence
        self._wanted = asyncio.Event()

    def soon(self) -> None:
        """Asks for the next round now."""
        self._wanted.set()

    async def run(self) -> None:
        """Goes on until cancelled."""
        failures = 0
        while True:
            self._wanted.clear()
            try:
                await self.once()
                failures = 0
                delay = self._settings.resync_seconds * _random.uniform(0.9, 1.1)
            except errors.ApiError as error:
                failures += 1
                delay = backoff_seconds(failures, longest=LONGEST_RETRY_SECONDS)
                logger.warning("Resync failed, again in %.1f s: %s", delay, error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), delay)

    async def once(self) -> None:
        """Lists everything and asks for a reconcile of every job that is not over.

        Raises:
            ApiError: something could not be listed.
        """
        namespaces = self._settings.watch_namespaces
        jobs = await self._storage.list_jobs(namespaces)
        jobsets = await self._storage.list_jobsets(namespaces)
        self._staleness.note_listed(kubernetes_names.PLURAL, jobs)
        self._staleness.note_listed(kubernetes_names.JOBSET_PLURAL, jobsets)
        self._jobs.keep_only({_key(job): JobFacts.of(job["spec"], job.get("status") or {}) for job in jobs})
        self._evidence.keep_only({_key(job) for job in jobs if not _is_over(job)})
        # One that is over matters as long as it has a JobSet, whose time to live is counted here.
        with_jobset = {_key(jobset) for jobset in jobsets}
        due = [_key(job) for job in jobs if not _is_over(job) or _key(job) in with_jobset]
        spread = SPREAD_SECONDS_PER_JOB * len(due)
        for key in due:
            self._add(key, _random.uniform(0, spread))


def _key(manifest: Object) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _is_over(job: Object) -> bool:
    status = job.get("status") or {}
    return status.get("phase") in TERMINAL and status.get("observedGeneration") == job["metadata"]["generation"]
