"""The watches of jobs, and of the JobSets and pods that were made for jobs: they feed the cache."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from tpujob_contract import kubernetes_names
from tpujob_operator.controller.watch_staleness import WatchStaleness
from tpujob_operator.kube.client import JOBSETS, PODS, Storage
from tpujob_operator.kube.list_watch import ListWatch, Sink
from tpujob_operator.kube.requests import Object
from tpujob_operator.observe.cache import Cache, name_of
from tpujob_operator.observe.terminations import TerminationCache
from tpujob_operator.settings import Settings
from tpujob_resource.models.stored import read_status

LAG_SECONDS = 1.0
"""A list that shows what no watch has reported for this long is believed more than the watches."""
START_SECONDS = 30.0
"""Longest wait at the start for watches that neither tell everything nor fail."""
LOOK_SECONDS = 0.1
"""Between looks at whether they do."""


class WatchesJobs(Protocol):
    """What tells of the jobs: kopf in an operator, see `job_watch`."""

    def is_live(self, namespace: str) -> bool:
        """Whether every job of a namespace is listed and watched."""
        ...

    async def run(self) -> None:
        """Goes on until cancelled."""
        ...

    def join(self) -> None:
        """Waits for what goes on in a thread of its own, after `run` was cancelled."""
        ...


class Watches:
    """One of all jobs; and of JobSets and of pods one each for every namespace that is served, or for all of them."""

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
        """Describes the watches; `run` opens them.

        Args:
            storage: Lists and watches.
            settings: Which namespaces.
            watch_jobs: Makes the watch of jobs, which tells a sink.
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
        """Goes on until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._jobs.run())
            for watches in self._of.values():
                for watch in watches:
                    tasks.create_task(watch.run())

    def join(self) -> None:
        """Waits for what goes on in a thread of its own, after `run` was cancelled."""
        self._jobs.join()

    async def wait_until_current(self) -> None:
        """Returns when the watches of each namespace tell everything, or have failed, or have taken too long.

        Passes made before that read several objects of each job from the API server, and with thousands of jobs they
        hold up the very lists that make this needless.
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
        """See `Sink`."""
        self._note(manifest, deleted)
        self._sink.changed(manifest, deleted=deleted)

    def listed(self, namespace: str | None, present: Collection[tuple[str, str]], version: int) -> None:
        """See `Sink`."""
        self._sink.listed(namespace, present, version)
