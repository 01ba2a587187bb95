"""Jobs, JobSets and pods as the watches report them: only what decisions need, so that thousands fit.

- An object is replaced by a newer version of itself and never by an older one, whether a version comes from the watch,
  from a read, or from one of our writes. So our own writes trigger no reconcile when the watch reports them.
- A cache may lag behind the API server. Actions that cannot be undone require a fresh read, or a precondition.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from tpujob_contract import kubernetes_names
from tpujob_operator.base import metrics
from tpujob_operator.kube.client import JOBS, JOBSETS
from tpujob_operator.kube.requests import Object, Resource, encoded
from tpujob_operator.observe.from_objects import jobset_state
from tpujob_operator.observe.pod_state import PodState, pod_state
from tpujob_operator.observe.state import JobSetState
from tpujob_operator.observe.terminations import Key, TerminationCache
from tpujob_resource.models.decoding import UNREADABLE

logger = logging.getLogger(__name__)

MOST_DELETIONS = 10_000
"""Deletions that each cache remembers; a list is read within seconds or minutes."""

type Name = tuple[str, str]
"""Namespace and name of any object."""
type News = Callable[[Key], None]
"""Called for a job that needs a reconcile."""


@dataclass(frozen=True, slots=True)
class KeptJobSet:
    """A JobSet and its resource version."""

    state: JobSetState
    job: str
    """Name of the job that it was made for."""
    namespace: str
    version: int

    @property
    def reference(self) -> Object:
        """The metadata for the preconditions of a write."""
        metadata = {"namespace": self.namespace, "name": self.state.name, "uid": self.state.uid}
        return {"metadata": {**metadata, "resourceVersion": str(self.version)}}


class Deletions:
    """The versions at which objects were deleted: a list may be older than a deletion, and be read later."""

    def __init__(self) -> None:
        self._versions: dict[Name, int] = {}

    def note(self, name: Name, version: int) -> None:
        """Records that the object of this name was deleted in this version."""
        self._versions.pop(name, None)
        self._versions[name] = version
        if len(self._versions) > MOST_DELETIONS:
            del self._versions[next(iter(self._versions))]

    def covers(self, name: Name, version: int) -> bool:
        """Whether this version of the object is not newer than its deletion."""
        return version <= self._versions.get(name, -1)


class JobCache:
    """TpuTrainingJobs, each kept as JSON, which takes a tenth of the memory of the decoded object."""

    def __init__(self, news: News) -> None:
        """`news`: called for every change that is not a write of ours."""
        self._news = news
        self._kept: dict[Key, tuple[int, bytes]] = {}
        self._deletions = Deletions()

    def get(self, key: Key) -> Object | None:
        """The job, a copy for the caller; None: there is none."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        job: Object = orjson.loads(kept[1])
        return job

    def unseen_first(self) -> list[Key]:
        """The keys of all jobs, first of those that are new or edited and not reconciled since."""
        return sorted(self._kept, key=lambda key: _is_seen(orjson.loads(self._kept[key][1])))

    def put(self, manifest: Object) -> bool:
        """Keeps this version, unless it or a newer one is known; returns whether it was kept."""
        key, version = name_of(manifest), version_of(manifest)
        if (kept := self._kept.get(key)) is not None and kept[0] >= version:
            return False
        if self._deletions.covers(key, version):
            return False
        self._kept[key] = (version, encoded(manifest))
        return True

    def changed(self, manifest: Object, *, deleted: bool) -> None:
        key = name_of(manifest)
        if deleted:
            self._deletions.note(key, version_of(manifest))
            if (kept := self._kept.get(key)) is not None and kept[0] <= version_of(manifest):
                del self._kept[key]
            self._news(key)
        elif self.put(manifest):
            if problems := manifest.get(UNREADABLE):
                metrics.UNREADABLE.labels(kubernetes_names.PLURAL).inc()
                logger.warning("Job left aside: %s/%s: %s", *key, "; ".join(problems))
            self._news(key)

    def listed(self, namespace: str | None, present: Collection[Name], version: int) -> None:
        for key in _missing(((key, kept[0]) for key, kept in self._kept.items()), namespace, present, version):
            del self._kept[key]
            self._deletions.note(key, version)
            self._news(key)


class JobSetCache:
    """JobSets that were made for a job."""

    def __init__(self, news: News) -> None:
        """`news`: called for a job whose JobSet has changed in a way that affects decisions."""
        self._news = news
        self._kept: dict[Name, KeptJobSet] = {}
        self._deletions = Deletions()

    def get(self, namespace: str, name: str) -> KeptJobSet | None:
        """The JobSet of this name; None: there is none that was made for a job."""
        return self._kept.get((namespace, name))

    def put(self, manifest: Object) -> bool:
        """Keeps this version, unless it or a newer one is known; returns whether it affects decisions."""
        found, name = kept_jobset(manifest), name_of(manifest)
        kept = self._kept.get(name)
        if (kept is not None and kept.version >= found.version) or self._deletions.covers(name, found.version):
            return False
        found = replace(found, state=replace(found.state, restarts_version=_restarts_version(found, kept)))
        self._kept[name] = found
        return kept is None or kept.state != found.state

    def changed(self, manifest: Object, *, deleted: bool) -> None:
        name = name_of(manifest)
        if deleted:
            self._deletions.note(name, version_of(manifest))
            kept = self._kept.get(name)
            if kept is not None and kept.version <= version_of(manifest):
                del self._kept[name]
            self._news((name[0], _job_of(manifest) or name[1]))
        elif self.put(manifest):
            self._news((name[0], self._kept[name].job))

    def listed(self, namespace: str | None, present: Collection[Name], version: int) -> None:
        for name in _missing(((n, kept.version) for n, kept in self._kept.items()), namespace, present, version):
            self._deletions.note(name, version)
            self._news((name[0], self._kept.pop(name).job))


class PodCache:
    """Pods of jobs, and the evidence of how their containers ended."""

    def __init__(self, news: News, evidence: TerminationCache) -> None:
        """Stores the callbacks.

        Args:
            news: Called for a job if one of its pods has changed in a way that affects decisions.
            evidence: Called with every pod, deleted ones included.
        """
        self._news = news
        self._evidence = evidence
        self._kept: dict[Key, dict[str, PodState]] = {}
        self._deletions = Deletions()

    def of(self, key: Key) -> list[PodState]:
        """The pods of a job, of every incarnation and attempt that still has some."""
        return list(self._kept.get(key, {}).values())

    def changed(self, manifest: Object, *, deleted: bool) -> None:
        job = _job_of(manifest)
        if job is None:
            return
        key = (manifest["metadata"]["namespace"], job)
        was_known = manifest["metadata"]["name"] in self._kept.get(key, {})
        is_news = self._evidence.note(key, manifest, deleted=deleted, was_known=was_known)
        if self._keep(key, manifest, deleted=deleted) or is_news:
            self._news(key)

    def _keep(self, key: Key, manifest: Object, *, deleted: bool) -> bool:
        name, found = manifest["metadata"]["name"], None if deleted else pod_state(manifest)
        if deleted:
            self._deletions.note((key[0], name), version_of(manifest))
        elif self._deletions.covers((key[0], name), version_of(manifest)):
            return False
        pods = self._kept.setdefault(key, {})
        before = pods.get(name)
        if before is not None and before.version > version_of(manifest):
            return False
        if found is not None:
            pods[name] = found
        else:
            pods.pop(name, None)
            if not pods:
                del self._kept[key]
        return found != before

    def listed(self, namespace: str | None, present: Collection[Name], version: int) -> None:
        kept = [((key, name), pod) for key, pods in self._kept.items() for name, pod in pods.items()]
        for key, name in [
            (key, name)
            for (key, name), pod in kept
            if namespace in (None, key[0]) and (key[0], name) not in present and pod.version <= version
        ]:
            self._deletions.note((key[0], name), version)
            del self._kept[key][name]
            if not self._kept[key]:
                del self._kept[key]
            self._news(key)


class Cache:
    """The caches of jobs, JobSets and pods."""

    def __init__(self, evidence: TerminationCache, news: News) -> None:
        """`evidence`: called for every pod; `news`: called for every job that needs a reconcile."""
        self.jobs = JobCache(news)
        self.jobsets = JobSetCache(news)
        self.pods = PodCache(news, evidence)

    def note_written(self, resource: Resource, manifest: Object) -> None:
        """Keeps an object as it is after one of our writes; its watch event then triggers no reconcile."""
        if resource == JOBS:
            self.jobs.put(manifest)
        elif resource == JOBSETS:
            self.jobsets.put(manifest)


def kept_jobset(manifest: Object) -> KeptJobSet:
    """The form in which a JobSet is kept."""
    namespace, name = name_of(manifest)
    return KeptJobSet(jobset_state(manifest), _job_of(manifest) or name, namespace, version_of(manifest))


def _restarts_version(found: KeptJobSet, kept: KeptJobSet | None) -> int | None:
    if kept is None or kept.state.uid != found.state.uid:
        return 0
    return found.version if kept.state.restarts != found.state.restarts else kept.state.restarts_version


def name_of(manifest: Mapping[str, Any]) -> Name:
    """Namespace and name."""
    metadata = manifest["metadata"]
    return metadata["namespace"], metadata["name"]


def version_of(manifest: Mapping[str, Any]) -> int:
    """The resource version: a number that grows with every write (kubernetes.io, "Kubernetes API Concepts")."""
    return int(manifest["metadata"]["resourceVersion"])


def _job_of(manifest: Mapping[str, Any]) -> str | None:
    name: str | None = (manifest["metadata"].get("labels") or {}).get(kubernetes_names.JOB_NAME)
    return name or None


def _is_seen(job: Object) -> bool:
    """Whether status is of the job's current generation."""
    return bool((job.get("status") or {}).get("observedGeneration") == job["metadata"].get("generation"))


def _missing(
    kept: Iterable[tuple[Name, int]], namespace: str | None, present: Collection[Name], version: int
) -> list[Name]:
    """The kept objects that are missing in a complete list as of `version`."""
    return [name for name, of in kept if namespace in (None, name[0]) and name not in present and of <= version]
