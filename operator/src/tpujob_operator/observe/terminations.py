"""How containers ended, kept from the watch's events: after a failure the pods are readable for seconds only.

In memory. What matters of it is written into the job's status by the next reconcile, moments later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tpujob_operator.observe.from_objects import ended_by_deletion, ended_from_pod, final_report_of_pod
from tpujob_operator.observe.pod_identity import pod_identity
from tpujob_operator.observe.report import Progress
from tpujob_operator.observe.state import Ended

type Key = tuple[str, str]
"""Namespace and name of a TpuTrainingJob."""

MOST_PER_JOB = 512
"""Beyond this the oldest go: a job of hundreds of hosts that restarts for ever must not fill the memory."""


class Evidence:
    """The ends seen so far, by job and pod."""

    def __init__(self) -> None:
        self._ended: dict[Key, dict[str, tuple[str, Ended]]] = {}
        self._final_reports: dict[Key, tuple[str, Progress]] = {}

    def note(self, key: Key, pod: Mapping[str, Any], *, deleted: bool = False) -> bool:
        """Keeps how this pod's container failed; whether that is news. `deleted`: the pod is gone."""
        identity = pod_identity(pod)
        if identity is None:
            return False
        final = final_report_of_pod(pod)
        if final is not None:
            self._final_reports[key] = (identity.jobset_uid, final)
        ended = ended_from_pod(pod) or (ended_by_deletion(pod) if deleted else None)
        if ended is None:
            return False
        of_job = self._ended.setdefault(key, {})
        uid = pod["metadata"]["uid"]
        if uid in of_job:
            # The first word counts: later versions of a pod add deletion time stamps that came after its end.
            return False
        of_job[uid] = (identity.jobset_uid, ended)
        while len(of_job) > MOST_PER_JOB:
            del of_job[next(iter(of_job))]
        return True

    def note_all(self, key: Key, pods: Iterable[Mapping[str, Any]]) -> None:
        """Keeps what these pods tell."""
        for pod in pods:
            self.note(key, pod)

    def of(self, key: Key, jobset_uid: str) -> tuple[Ended, ...]:
        """What is known of the pods of one JobSet."""
        return tuple(ended for uid, ended in self._ended.get(key, {}).values() if uid == jobset_uid)

    def final_report(self, key: Key, jobset_uid: str) -> Progress | None:
        """What process 0 of this JobSet reported when it last ended; None when it left no report."""
        uid, progress = self._final_reports.get(key, ("", None))
        return progress if uid == jobset_uid else None

    def drop_final_report(self, key: Key) -> None:
        """Another process 0 runs: should it end without a word, the one before it has nothing to say."""
        self._final_reports.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drops a job that is gone, over or at rest."""
        self._ended.pop(key, None)
        self._final_reports.pop(key, None)
