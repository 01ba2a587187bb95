"""The watches of jobs, and of the JobSets and pods that were made for jobs: they feed the cache."""

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from tpujob_contract import kubernetes_names
from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.watch_staleness import WatchStaleness
from tpujob_operator.kube.client import JOBSETS, PODS, Storage
from tpujob_operator.kube.list_watch import ListWatch, Sink
from tpujob_operator.kube.requests import Object
from tpujob_operator.observe.cache import Cache, name_of
from tpujob_operator.observe.terminations import TerminationCache
from tpujob_resource.models.stored import read_status

LAG_SECONDS = 1.0
"""If no watch has reported for this long what a list shows, the cache does not count as complete."""
START_SECONDS = 30.0
"""Longest wait at the start for watches that are neither complete nor failed."""
LOOK_SECONDS = 0.1
"""Between checks whether they are."""


class WatchesJobs(Protocol):
    """The watch of jobs: kopf in an operator, see `job_watch`."""

    def is_live(self, namespace: str) -> bool:
        """Whether every job of a namespace is listed and watched."""
        ...

    async def run(self) -> None:
        """Watches until cancelled."""
        ...

    def join(self) -> None:
        """Waits for the watch of jobs, which may have its own thread, after `run` was cancelled."""
        ...


class Watches:
    """One watch of all jobs; and one of JobSets and one of pods for each served namespace, or for all namespaces."""

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        *,
        watch_jobs: Callable[[Sink], WatchesJobs],
        cache: Cache,
        evidence: TerminationCache,
        staleness: WatchStaleness,
    ) -> None:
        """Stores the parameters; `run` opens the watches.

        Args:
            storage: Lists and watches.
            settings: Which namespaces.
            watch_jobs: Creates the watch of jobs, which calls a sink.
            cache: Gets all objects.
            evidence: Gets the jobs; the cache forwards the pods.
            staleness: Gets the reported versions of jobs and JobSets.
        """
        self._staleness = staleness

        def note_job(job: Object, deleted: bool) -> None:
            staleness.note_watched(kubernetes_names.PLURAL, job)
            evidence.note_job(name_of(job), read_status(job.get("status")), deleted=deleted)

        def note_jobset(jobset: Object, _: bool) -> None:
            staleness.note_watched(kubernetes_names.JOBSET_PLURAL, jobset)

        def of(namespace: str | None) -> tuple[ListWatch, ...]:
            label = kubernetes_names.JOB_NAME
            jobsets = _Noted(cache.jobsets, note_jobset)
            return (
                ListWatch(storage, JOBSETS, namespace, selector=label, sink=jobsets),
                ListWatch(storage, PODS, namespace, selector=label, sink=cache.pods),
            )

        self._jobs = watch_jobs(_Noted(cache.jobs, note_job))
        self._of = {namespace: of(namespace) for namespace in settings.watch_namespaces or (None,)}

    async def run(self) -> None:
        """Watches until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._jobs.run())
            for watches in self._of.values():
                for watch in watches:
                    tasks.create_task(watch.run())

    def join(self) -> None:
        """Waits for the watch of jobs, which may have its own thread, after `run` was cancelled."""
        self._jobs.join()

    async def wait_until_current(self) -> None:
        """Returns when the watches of each namespace are complete, or have failed, or have taken too long.

        Reconciles before that read several objects of each job from the API server, and with thousands of jobs they
        delay the lists that make these reads unnecessary.
        """
        for _ in range(round(START_SECONDS / LOOK_SECONDS)):
            if all(self._is_settled(namespace) for namespace in self._of):
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _is_settled(self, namespace: str | None) -> bool:
        has_failed = self._staleness.list_error(namespace) or any(watch.failures for watch in self._of[namespace])
        return bool(has_failed) or self.is_current(namespace or "")

    def is_current(self, namespace: str) -> bool:
        """Whether the cache holds everything in a namespace, as far as lists show."""
        watches = self._of.get(namespace) or self._of.get(None) or ()
        is_live = self._jobs.is_live(namespace) and bool(watches) and all(watch.is_live for watch in watches)
        return is_live and self._staleness.seconds_behind() <= LAG_SECONDS


class _Noted:
    """Calls an observer, then forwards the event."""

    def __init__(self, sink: Sink, note: Callable[[Object, bool], None]) -> None:
        self._sink = sink
        self._note = note

    def changed(self, manifest: Object, *, deleted: bool) -> None:
        self._note(manifest, deleted)
        self._sink.changed(manifest, deleted=deleted)

    def listed(self, namespace: str | None, present: Collection[tuple[str, str]], version: int) -> None:
        self._sink.listed(namespace, present, version)
