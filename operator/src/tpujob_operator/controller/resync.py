"""Reconciles every job at intervals, even without a watch event: a safety net for the watches.

Timers of kopf (1.45) are not used. They put a finalizer on each job, which then cannot be deleted while the operator is
down. They start when a watch first reports an object and use its last reported state, so that they miss what the watch
has missed (nolar/kopf:kopf/_core/engines/daemons.py).
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence

from tpujob_contract import kubernetes_names
from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.job_gauges import JobFacts, JobGauges
from tpujob_operator.controller.watch_staleness import WatchStaleness
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import JOBS, JOBSETS, Storage
from tpujob_operator.kube.errors import backoff_seconds
from tpujob_operator.kube.list_watch import isolated
from tpujob_operator.kube.requests import Object
from tpujob_operator.observe.terminations import Key, TerminationCache
from tpujob_resource.models.phases import TERMINAL
from tpujob_resource.models.stored import StoredJob

logger = logging.getLogger(__name__)

LONGEST_RETRY_SECONDS = 30.0
SPREAD_SECONDS_PER_JOB = 0.0015
"""A reconcile without a change takes about 0.3 ms, so jobs with watch events in the meantime are not delayed."""
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
        evidence: TerminationCache,
    ) -> None:
        """Keeps the parts.

        Args:
            storage: Lists.
            settings: Which namespaces, how often.
            add: Asks for a reconcile of a job, in some seconds.
            staleness: Gets what was listed.
            jobs: Gets the existing jobs, for the metrics.
            evidence: Gets the same, to drop what is gone.
        """
        self._storage = storage
        self._settings = settings
        self._add = add
        self._staleness = staleness
        self._jobs = jobs
        self._evidence = evidence
        self._wanted = asyncio.Event()

    def soon(self) -> None:
        """Starts the next round now."""
        self._wanted.set()

    async def run(self) -> None:
        """Resyncs until cancelled, in rounds of all namespaces; retries early those that could not be listed."""
        everything: tuple[str | None, ...] = self._settings.watch_namespaces or (None,)
        wanted, failures, round_ends = everything, 0, 0.0
        while True:
            self._wanted.clear()
            if wanted is everything:
                interval = self._settings.resync_seconds * _random.uniform(0.9, 1.1)
                round_ends = asyncio.get_running_loop().time() + interval
            failed = await self.once(wanted)
            failures = failures + 1 if failed else 0
            left = max(0.0, round_ends - asyncio.get_running_loop().time())
            delay = min(left, backoff_seconds(failures, longest=LONGEST_RETRY_SECONDS)) if failed else left
            wanted = failed if failed and delay < left else everything
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), delay)
                wanted = everything

    async def once(self, namespaces: Sequence[str | None]) -> tuple[str | None, ...]:
        """Lists these namespaces and asks for a reconcile of every job that is not over.

        Returns:
            The namespaces that could not be listed; they do not delay the others.
        """
        failed = []
        for namespace in namespaces:
            try:
                await self._list(namespace)
            except errors.ApiError as error:
                failed.append(namespace)
                self._staleness.note_list_failed(namespace, str(error))
                logger.warning("Resync failed: namespace %s: %s", namespace or "*", error)
        return tuple(failed)

    async def _list(self, namespace: str | None) -> None:
        """Lists a namespace page by page, and keeps only the needed fields: whole objects would fill the memory."""
        jobs: list[Object] = []
        facts: dict[Key, JobFacts] = {}
        still_open: set[Key] = set()
        async for page in self._storage.pages(JOBS, namespace):
            for job in page["items"]:
                jobs.append(_reference(job))
                with isolated(JOBS, job):
                    stored = StoredJob(manifest=job)
                    if stored.other_manager is None:
                        owner = stored.owner(self._settings.owner_label)
                        facts[_key(job)] = JobFacts.of(stored.spec, stored.status, owner=owner)
                    if not _is_over(stored):
                        still_open.add(_key(job))
        made = self._storage.pages(JOBSETS, namespace, labels=kubernetes_names.JOB_NAME)
        jobsets = [_reference(jobset) async for page in made for jobset in page["items"]]
        self._staleness.note_listed(kubernetes_names.PLURAL, jobs, namespace)
        self._staleness.note_listed(kubernetes_names.JOBSET_PLURAL, jobsets, namespace)
        self._jobs.keep_only(facts, namespace)
        self._evidence.keep_only(still_open, namespace)
        # A job that is over matters as long as it has a JobSet, because the operator counts the JobSet's ttl.
        due = still_open | {key for key in map(_key, jobsets) if key in facts}
        spread = SPREAD_SECONDS_PER_JOB * len(due)
        for key in due:
            self._add(key, _random.uniform(0, spread))


def _reference(manifest: Object) -> Object:
    metadata = manifest["metadata"]
    return {"metadata": {name: metadata[name] for name in ("namespace", "name", "resourceVersion")}}


def _key(manifest: Object) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _is_over(job: StoredJob) -> bool:
    return job.status.phase in TERMINAL and job.status.observed_generation == job.generation
