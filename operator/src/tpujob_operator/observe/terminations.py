"""How containers ended, kept from the watch's events: after a failure the pods are readable for seconds only.

It is kept in memory, limited by attempts and hosts. The next reconcile, moments later, records the important part in
the job's status.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tpujob_contract.exit_codes import FATAL
from tpujob_contract.reports import termination_message
from tpujob_operator.observe.from_objects import (
    account_of_pod,
    ended_by_deletion,
    ended_from_pod,
    final_report_of_pod,
    leaving_from_pod,
)
from tpujob_operator.observe.in_place import InPlaceAccount
from tpujob_operator.observe.pod_identity import pod_identity
from tpujob_operator.observe.report import Progress
from tpujob_operator.observe.state import Ended, Host, Leaving
from tpujob_resource.models.phases import TERMINAL
from tpujob_resource.models.status import Status

type Key = tuple[str, str]
"""Namespace and name of a TpuTrainingJob."""
type Attempt = tuple[str, int]
"""The uid of a JobSet and its restart attempt."""

MOST_PER_ATTEMPT = 4096
"""The most hosts that a job may have. Later ends beyond this are dropped: the first is the cause."""
MOST_STOPPED = 4 * MOST_PER_ATTEMPT
"""Pods of earlier starts that are remembered as such; the Job controller removes most of them soon."""
MOST_ATTEMPTS = 64
"""Beyond this the oldest attempts are dropped: a job that restarts endlessly must not fill the memory."""
WHOLE_MESSAGES = 16
"""Ends of an attempt that keep their whole message, the first ones: they are the likeliest causes. Of the others the
last characters are kept, and the lines that say who failed first."""
SHORT_MESSAGE_LENGTH = 200
LONGEST_UNTOLD = timedelta(minutes=1)
"""Longest delay of a kubelet's report that a container has ended. If a container was observed to run when it was asked
to stop, and its reported end is earlier by more than this, the clock of its node is behind."""


class TerminationCache:
    """The ends seen so far, by job, attempt and pod."""

    def __init__(self) -> None:
        self._ended: dict[Key, dict[Attempt, dict[str, Ended]]] = {}
        self._final_reports: dict[Key, tuple[str, str, Progress]] = {}
        """Uid of the JobSet, when the pod was made, and its report."""
        self._accounts: dict[Key, dict[Attempt, dict[str, InPlaceAccount]]] = {}
        """Of restarts in the same pods; by the pod's uid."""
        self._leaving: dict[Key, dict[str, tuple[str, Leaving]]] = {}
        """By the pod's uid; with the uid of its JobSet."""
        self._stopped: dict[Key, set[str]] = {}
        """Uids of pods of an earlier start of an attempt, which say nothing about the current one."""
        self._replaced: dict[Key, dict[Attempt, dict[str, Ended]]] = {}
        """Ends of pods that were replaced, after which the attempt went on; by the pod's uid."""
        self._paused: set[Key] = set()
        """Jobs whose next start is delayed, according to status; a process that does not lead resumes none itself."""

    def note(self, key: Key, pod: Mapping[str, Any], *, deleted: bool = False, was_known: bool = True) -> bool:
        """Records how this pod's container failed; returns whether that is new.

        Args:
            key: Of the job.
            pod: As it is now.
            deleted: Whether the pod is gone.
            was_known: Whether an earlier state of it was observed. If not, the version in which it ended is unknown: it
                may have been written since.
        """
        identity = pod_identity(pod)
        if identity is None:
            return False
        final = final_report_of_pod(pod)
        made = str(pod["metadata"].get("creationTimestamp", ""))
        # An earlier pod, which workers leave beside its successor, is reported again by each list and at its deletion.
        if final is not None and made >= self._final_reports.get(key, ("", "", None))[1]:
            self._final_reports[key] = (identity.jobset_uid, made, final)
        uid, version = pod["metadata"]["uid"], _version(pod)
        account = account_of_pod(pod)
        if account is not None:
            _keep(self._accounts.setdefault(key, {}), (identity.jobset_uid, account.attempt), uid, account)
        if uid in self._stopped.get(key, ()):
            return False
        left = leaving_from_pod(pod)
        asked = self._leaving.get(key, {}).get(uid)
        if left is not None and not deleted:
            if asked is None:
                self._leaving.setdefault(key, {})[uid] = (identity.jobset_uid, replace(left, asked_version=version))
            return asked is None
        ended = ended_from_pod(pod) or (ended_by_deletion(pod) if deleted else None)
        if ended is None:
            return False
        self._leaving.get(key, {}).pop(uid, None)
        if asked is not None and asked[1].asked_at - ended.finished_at > LONGEST_UNTOLD:
            ended = replace(ended, was_asked=True)
        asked_version = asked[1].asked_version if asked is not None else version if ended.was_asked else None
        ended = replace(ended, version=version if was_known else None, asked_version=asked_version)
        return self._keep_end(key, (identity.jobset_uid, ended.attempt), uid, ended)

    def _keep_end(self, key: Key, attempt: Attempt, pod_uid: str, ended: Ended) -> bool:
        attempts = self._ended.setdefault(key, {})
        of_attempt = attempts.get(attempt, {})
        # The first version counts: later ones add deletion timestamps from after the pod's end.
        if pod_uid in of_attempt or len(of_attempt) >= MOST_PER_ATTEMPT:
            return False
        if len(of_attempt) >= WHOLE_MESSAGES and ended.exit_code not in FATAL:
            ended = replace(ended, message=termination_message.shortened(ended.message, SHORT_MESSAGE_LENGTH))
        _keep(attempts, attempt, pod_uid, ended)
        return True

    def note_all(self, key: Key, pods: Iterable[Mapping[str, Any]]) -> None:
        """Records how the containers of these pods failed."""
        for pod in pods:
            self.note(key, pod)

    def note_job(self, key: Key, status: Status, *, deleted: bool) -> None:
        """Drops what this status makes unnecessary: a process that is not the leader has no other source for that."""
        if deleted or status.phase in TERMINAL:
            self.forget(key)
            return
        if status.restarts.next_time is not None:
            self._paused.add(key)
        elif key in self._paused:
            self._paused.discard(key)
            self.forget_stopped(key, status.internal.job_set_uid or "", status.internal.booked_restarts or 0)
        # The attempt that was judged last is quoted until the next one is complete.
        first = (status.internal.booked_restarts or 0) - 1
        self._drop(key, lambda uid, number: uid == status.internal.job_set_uid and number < first)

    def keep_only(self, keys: Container[Key], namespace: str | None = None) -> None:
        """Drops all other jobs of a namespace; of all namespaces when it is None."""
        for key in [
            key
            for key in {
                *self._ended,
                *self._final_reports,
                *self._accounts,
                *self._leaving,
                *self._stopped,
            }
            if key not in keys
        ]:
            if namespace in (None, key[0]):
                self.forget(key)

    def of(self, key: Key, jobset_uid: str) -> tuple[Ended, ...]:
        """The recorded ends of the pods of one JobSet."""
        return _of(self._ended.get(key, {}), jobset_uid)

    def note_replaced(self, key: Key, jobset_uid: str, hosts: Iterable[Host], restarted_at: datetime) -> bool:
        """Sets aside the ends of pods in whose place another one runs; returns whether there were any.

        Args:
            key: Of the job.
            jobset_uid: Its JobSet.
            hosts: The pods that run.
            restarted_at: When the programs last started again in them; only earlier ends are set aside.
        """
        there = {(host.attempt, host.slice_index, host.host_index): host.pod for host in hosts}
        is_news = False
        for (uid, number), of_attempt in self._ended.get(key, {}).items():
            for pod_uid, end in list(of_attempt.items()):
                instead = there.get((number, end.slice_index, end.host_index), end.pod)
                if uid == jobset_uid and instead != end.pod and end.finished_at < restarted_at:
                    del of_attempt[pod_uid]
                    self._stopped.setdefault(key, set()).add(pod_uid)
                    _keep(self._replaced.setdefault(key, {}), (uid, number), pod_uid, end)
                    is_news = True
        return is_news

    def replaced(self, key: Key, jobset_uid: str) -> tuple[Ended, ...]:
        """The ends that were set aside, of the pods of one JobSet."""
        return _of(self._replaced.get(key, {}), jobset_uid)

    def accounts(self, key: Key, jobset_uid: str) -> tuple[InPlaceAccount, ...]:
        """The accounts of restarts in the same pods, of ended pods of one JobSet."""
        return _of(self._accounts.get(key, {}), jobset_uid)

    def leaving(self, key: Key, jobset_uid: str) -> tuple[Leaving, ...]:
        """The pods of one JobSet that were asked to stop and have not ended."""
        return tuple(left for uid, left in self._leaving.get(key, {}).values() if uid == jobset_uid)

    def forget_stopped(self, key: Key, jobset_uid: str, first_attempt: int) -> None:
        """Drops the ends of pods that were asked to stop because the JobSet was suspended, also future ones.

        JobSet resumes the attempt that it suspended: pods of both starts have the same attempt number.

        Args:
            key: Of the job.
            jobset_uid: Its JobSet, which is resumed.
            first_attempt: The attempt that continues; earlier ones keep their ends.
        """
        leaving = self._leaving.pop(key, {})
        self._stopped.setdefault(key, set()).update(leaving)
        for (uid, number), of_attempt in self._ended.get(key, {}).items():
            if uid == jobset_uid and number >= first_attempt:
                stopped = [pod for pod, end in of_attempt.items() if end.is_consequence]
                self._stopped[key].update(stopped)
                for pod in stopped:
                    del of_attempt[pod]
        # Earlier replaced pods, too: they would be taken for the reason why all pods are new after the suspension.
        for uid, number in [each for each in self._replaced.get(key, {}) if each[0] == jobset_uid]:
            if number >= first_attempt:
                del self._replaced[key][uid, number]

    def forget_start(self, key: Key) -> None:
        """Drops how all pods so far ended, also what is reported of them later: the job is suspended.

        The Job controller keeps some ended pods until they are replaced, or until the Job is deleted. Their last events
        come when JobSet has resumed the same attempt in other pods.
        """
        over = [*self._stopped.get(key, ()), *self._leaving.get(key, ())]
        for attempts in (self._ended, self._replaced):
            over += (pod for of_attempt in attempts.get(key, {}).values() for pod in of_attempt)
        self.forget(key)
        if over:
            self._stopped[key] = set(over[-MOST_STOPPED:])

    def final_report(self, key: Key, jobset_uid: str) -> Progress | None:
        """What process 0 of this JobSet reported when it last ended; None: it left no report."""
        uid, _, progress = self._final_reports.get(key, ("", "", None))
        return progress if uid == jobset_uid else None

    def drop_final_report(self, key: Key) -> None:
        """Drops the final report: another process 0 runs, and the old report does not describe its end."""
        self._final_reports.pop(key, None)

    def forget(self, key: Key) -> None:
        """Drops a job that is gone or over."""
        self._ended.pop(key, None)
        self._final_reports.pop(key, None)
        self._accounts.pop(key, None)
        self._leaving.pop(key, None)
        self._stopped.pop(key, None)
        self._replaced.pop(key, None)
        self._paused.discard(key)

    def _drop(self, key: Key, is_needless: Callable[[str, int], bool]) -> None:
        for attempts in (self._ended.get(key, {}), self._replaced.get(key, {}), self._accounts.get(key, {})):
            for attempt in [attempt for attempt in attempts if is_needless(*attempt)]:
                del attempts[attempt]
        if not self._ended.get(key):
            self._ended.pop(key, None)


def _keep[T](attempts: dict[Attempt, dict[str, T]], attempt: Attempt, pod_uid: str, value: T) -> None:
    """Keeps a value of a pod; beyond the limits the oldest are dropped."""
    of_attempt = attempts.setdefault(attempt, {})
    of_attempt[pod_uid] = value
    if len(of_attempt) > MOST_PER_ATTEMPT:
        del of_attempt[next(iter(of_attempt))]
    if len(attempts) > MOST_ATTEMPTS:
        del attempts[next(iter(attempts))]


def _of[T](attempts: Mapping[Attempt, Mapping[str, T]], jobset_uid: str) -> tuple[T, ...]:
    return tuple(value for (uid, _), of_pods in attempts.items() if uid == jobset_uid for value in of_pods.values())


def _version(pod: Mapping[str, Any]) -> int | None:
    version = pod["metadata"].get("resourceVersion")
    return int(version) if version else None
