"""How containers ended, kept from the watch's events: after a failure the pods are readable for seconds only.

It is kept in memory, limited by attempts and hosts. The next reconcile, moments later, records the important part in
the job's status.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
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


@dataclass
class _OfJob:
    """What was seen of a job; ends, accounts and pods that leave by the pod's uid."""

    ended: dict[Attempt, dict[str, Ended]] = field(default_factory=dict)
    final_report: tuple[str, str, Progress | None] = ("", "", None)
    """Uid of the JobSet, when the pod was made, and its report."""
    accounts: dict[Attempt, dict[str, InPlaceAccount]] = field(default_factory=dict)
    """Of restarts in the same pods."""
    leaving: dict[str, tuple[str, Leaving]] = field(default_factory=dict)
    """With the uid of the JobSet."""
    stopped: set[str] = field(default_factory=set)
    """Uids of pods of an earlier start of an attempt, which say nothing about the current one."""
    replaced: dict[Attempt, dict[str, Ended]] = field(default_factory=dict)
    """Ends of pods that were replaced, after which the attempt went on."""
    is_paused: bool = False
    """Whether its next start is delayed, according to status; a process that does not lead resumes none itself."""


class TerminationCache:
    """The ends seen so far, by job, attempt and pod."""

    def __init__(self) -> None:
        self._jobs: dict[Key, _OfJob] = {}

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
        job, final = self._jobs.setdefault(key, _OfJob()), final_report_of_pod(pod)
        made = str(pod["metadata"].get("creationTimestamp", ""))
        # An earlier pod, which workers leave beside its successor, is reported again by each list and at its deletion.
        if final is not None and made >= job.final_report[1]:
            job.final_report = (identity.jobset_uid, made, final)
        uid, version = pod["metadata"]["uid"], _version(pod)
        account = account_of_pod(pod)
        if account is not None:
            _keep(job.accounts, (identity.jobset_uid, account.attempt), uid, account)
        if uid in job.stopped:
            return False
        left = leaving_from_pod(pod)
        asked = job.leaving.get(uid)
        if left is not None and not deleted:
            if asked is None:
                job.leaving[uid] = (identity.jobset_uid, replace(left, asked_version=version))
            return asked is None
        ended = ended_from_pod(pod) or (ended_by_deletion(pod) if deleted else None)
        if ended is None:
            return False
        job.leaving.pop(uid, None)
        if asked is not None and asked[1].asked_at - ended.finished_at > LONGEST_UNTOLD:
            ended = replace(ended, was_asked=True)
        asked_version = asked[1].asked_version if asked is not None else version if ended.was_asked else None
        ended = replace(ended, version=version if was_known else None, asked_version=asked_version)
        of_attempt = job.ended.get((identity.jobset_uid, ended.attempt), {})
        # The first version counts: later ones add deletion timestamps from after the pod's end.
        if uid in of_attempt or len(of_attempt) >= MOST_PER_ATTEMPT:
            return False
        if len(of_attempt) >= WHOLE_MESSAGES and ended.exit_code not in FATAL:
            ended = replace(ended, message=termination_message.shortened(ended.message, SHORT_MESSAGE_LENGTH))
        _keep(job.ended, (identity.jobset_uid, ended.attempt), uid, ended)
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
        job = self._of(key)
        if status.restarts.next_time is not None:
            self._jobs.setdefault(key, job).is_paused = True
        elif job.is_paused:
            job.is_paused = False
            self.forget_stopped(key, status.internal.job_set_uid or "", status.internal.booked_restarts or 0)
        # The attempt that was judged last is quoted until the next one is complete.
        first = (status.internal.booked_restarts or 0) - 1
        for attempts in (job.ended, job.replaced, job.accounts):
            for attempt in [(uid, n) for uid, n in attempts if uid == status.internal.job_set_uid and n < first]:
                del attempts[attempt]

    def keep_only(self, keys: Container[Key], namespace: str | None = None) -> None:
        """Drops all other jobs of a namespace; of all namespaces when it is None."""
        for key in [key for key in self._jobs if key not in keys and namespace in (None, key[0])]:
            self.forget(key)

    def of(self, key: Key, jobset_uid: str) -> tuple[Ended, ...]:
        """The recorded ends of the pods of one JobSet."""
        return _of(self._of(key).ended, jobset_uid)

    def note_replaced(self, key: Key, jobset_uid: str, hosts: Iterable[Host], restarted_at: datetime) -> bool:
        """Sets aside the ends of pods in whose place another one runs; returns whether there were any.

        Args:
            key: Of the job.
            jobset_uid: Its JobSet.
            hosts: The pods that run.
            restarted_at: When the programs last started again in them; only earlier ends are set aside.
        """
        there = {(host.attempt, host.slice_index, host.host_index): host.pod for host in hosts}
        job, is_news = self._of(key), False
        for (uid, number), of_attempt in job.ended.items():
            for pod_uid, end in list(of_attempt.items()):
                instead = there.get((number, end.slice_index, end.host_index), end.pod)
                if uid == jobset_uid and instead != end.pod and end.finished_at < restarted_at:
                    del of_attempt[pod_uid]
                    job.stopped.add(pod_uid)
                    _keep(job.replaced, (uid, number), pod_uid, end)
                    is_news = True
        return is_news

    def replaced(self, key: Key, jobset_uid: str) -> tuple[Ended, ...]:
        """The ends that were set aside, of the pods of one JobSet."""
        return _of(self._of(key).replaced, jobset_uid)

    def accounts(self, key: Key, jobset_uid: str) -> tuple[InPlaceAccount, ...]:
        """The accounts of restarts in the same pods, of ended pods of one JobSet."""
        return _of(self._of(key).accounts, jobset_uid)

    def leaving(self, key: Key, jobset_uid: str) -> tuple[Leaving, ...]:
        """The pods of one JobSet that were asked to stop and have not ended."""
        return tuple(left for uid, left in self._of(key).leaving.values() if uid == jobset_uid)

    def forget_stopped(self, key: Key, jobset_uid: str, first_attempt: int) -> None:
        """Drops the ends of pods that were asked to stop because the JobSet was suspended, also future ones.

        JobSet resumes the attempt that it suspended: pods of both starts have the same attempt number.

        Args:
            key: Of the job.
            jobset_uid: Its JobSet, which is resumed.
            first_attempt: The attempt that continues; earlier ones keep their ends.
        """
        job = self._jobs.setdefault(key, _OfJob())
        job.stopped.update(job.leaving)
        job.leaving = {}
        for (uid, number), of_attempt in job.ended.items():
            if uid == jobset_uid and number >= first_attempt:
                stopped = [pod for pod, end in of_attempt.items() if end.is_consequence]
                job.stopped.update(stopped)
                for pod in stopped:
                    del of_attempt[pod]
        # Earlier replaced pods, too: they would be taken for the reason why all pods are new after the suspension.
        for attempt in [(uid, number) for uid, number in job.replaced if uid == jobset_uid and number >= first_attempt]:
            del job.replaced[attempt]

    def forget_start(self, key: Key) -> None:
        """Drops how all pods so far ended, also what is reported of them later: the job is suspended.

        The Job controller keeps some ended pods until they are replaced, or until the Job is deleted. Their last events
        come when JobSet has resumed the same attempt in other pods.
        """
        job = self._of(key)
        over = [*job.stopped, *job.leaving]
        for attempts in (job.ended, job.replaced):
            over += (pod for of_attempt in attempts.values() for pod in of_attempt)
        self.forget(key)
        if over:
            self._jobs[key] = _OfJob(stopped=set(over[-MOST_STOPPED:]))

    def final_report(self, key: Key, jobset_uid: str) -> Progress | None:
        """What process 0 of this JobSet reported when it last ended; None: it left no report."""
        uid, _, progress = self._of(key).final_report
        return progress if uid == jobset_uid else None

    def drop_final_report(self, key: Key) -> None:
        """Drops the final report: another process 0 runs, and the old report does not describe its end."""
        self._of(key).final_report = ("", "", None)

    def forget(self, key: Key) -> None:
        """Drops a job that is gone or over."""
        self._jobs.pop(key, None)

    def _of(self, key: Key) -> _OfJob:
        """What was seen of a job; of one that is not known, nothing, which is not kept."""
        return self._jobs.get(key) or _OfJob()


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
