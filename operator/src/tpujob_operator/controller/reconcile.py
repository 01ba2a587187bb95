"""The reconcile that every trigger leads to: observe, decide, act, and schedule the next one."""

import logging
import time
from collections.abc import Callable

from tpujob_contract import kubernetes_names
from tpujob_operator.base import metrics
from tpujob_operator.base.settings import Settings
from tpujob_operator.controller.apply import act
from tpujob_operator.controller.fair_queue import shared_by_namespaces
from tpujob_operator.controller.job_gauges import JobFacts, JobGauges
from tpujob_operator.controller.json_logs import current_job
from tpujob_operator.controller.place import Places
from tpujob_operator.controller.work_queue import WorkQueue
from tpujob_operator.decide.causes import restart_accounting
from tpujob_operator.decide.chain import Decision, decide
from tpujob_operator.decide.verdict import Step
from tpujob_operator.kube import errors
from tpujob_operator.kube.client import Storage
from tpujob_operator.kube.errors import backoff_seconds
from tpujob_operator.kube.requests import Object
from tpujob_operator.observe.gather import Gatherer
from tpujob_operator.observe.state import Observed
from tpujob_operator.observe.terminations import Key
from tpujob_resource.models.phases import TERMINAL, Traits

logger = logging.getLogger(__name__)

RECONCILES_AT_ONCE = 8
CONFLICT_SECONDS = 0.1
"""After a conflict: another client wrote a moment ago, so what is read now is new."""
REFUSAL_SECONDS = 0.1
"""After a refusal to create the JobSet for a new reason: the next reconcile writes it into the status."""
LONGEST_REFUSED_SECONDS = 60.0
"""Between attempts after a refusal: a right or a quota may have been granted, and a user waits."""
LONGEST_UNAVAILABLE_SECONDS = 30.0
"""Between attempts while the API server is unavailable: jobs are to be reconciled soon after it is back."""


class Reconciler:
    """Brings jobs from their observed to their desired state."""

    def __init__(
        self,
        storage: Storage,
        gatherer: Gatherer,
        settings: Settings,
        jobs: JobGauges,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """Keeps the parts.

        Args:
            storage: For writing.
            gatherer: For reading.
            settings: What decisions depend on.
            jobs: Gets the facts of each job, for the metrics.
            leads: Whether this process is the leader; all jobs are due again when it becomes that.
        """
        self._leads = leads
        self._storage = storage
        self._gatherer = gatherer
        self._settings = settings
        self._jobs = jobs
        self._places = Places(storage, settings)
        self._failures: dict[Key, int] = {}
        self._to_read_anew: set[Key] = set()

    def queue(self) -> WorkQueue[Key]:
        """A queue that calls `reconcile`; the metrics of the queue are those of this one."""
        ready = shared_by_namespaces(RECONCILES_AT_ONCE)
        metrics.QUEUED.set_function(ready.__len__)
        return WorkQueue(self.reconcile, ready, waited=metrics.QUEUE_SECONDS.observe)

    async def reconcile(self, key: Key) -> float | None:
        """Reconciles a job once; returns the seconds until the next reconcile, None: watch events trigger it.

        Refusals and failures of the API server are logged and retried; only defects are raised.
        """
        if not self._leads():
            return None
        current_job.set(key)
        started = time.monotonic()
        result = "crashed"
        try:
            again = await self._pass(key)
            self._failures.pop(key, None)
            result = "ok"
        except errors.Conflict as error:
            result, again = "conflict", CONFLICT_SECONDS
            self._to_read_anew.add(key)
            logger.debug("Changed meanwhile: %s/%s: %s", *key, error)
        except errors.Unavailable as error:
            result, again = "unavailable", self._later(key, longest=LONGEST_UNAVAILABLE_SECONDS)
            logger.warning("API server not available: %s/%s, again in %.1f s: %s", *key, again, error)
        except errors.ApiError as error:
            if isinstance(error, errors.NotFound):
                # The job itself may be deleted, and no watch has shown it yet.
                self._to_read_anew.add(key)
            result, again = "refused", self._later(key, longest=LONGEST_REFUSED_SECONDS)
            logger.warning("Refused: %s/%s, again in %.1f s: %s", *key, again, error)
        finally:
            metrics.RECONCILES.labels(result).inc()
            metrics.RECONCILE_SECONDS.observe(time.monotonic() - started)
        return again

    async def _pass(self, key: Key) -> float | None:
        decided = await self._decide(key)
        if decided is None:
            self._jobs.forget(key)
            self._places.forget(key)
            self._to_read_anew.discard(key)
            return None
        observed, jobset, decision = decided
        if decision is None:
            self._jobs.forget(key)
            self._to_read_anew.discard(key)
            return await self._places.ask(key, observed)
        try:
            has_other_policy = await act(self._storage, observed, jobset, decision)
        except errors.ApiError as error:
            if _is_refusal(error, decision.step) and self._gatherer.note_refusal(key, _refusal_message(error)):
                return REFUSAL_SECONDS
            raise
        self._to_read_anew.discard(key)
        self._note(key, observed, decision, has_other_policy=has_other_policy)
        if has_other_policy or decision.status.phase is not observed.status.phase:
            return 0  # once more, from what is recorded now
        return decision.requeue_after_seconds

    async def _decide(self, key: Key) -> tuple[Observed, Object | None, Decision | None] | None:
        """The observation, the observed JobSet and the decision; None: the job is gone.

        There is no decision for a job of another controller.

        A decision that cannot be undone is made from a fresh read: the cache may be behind.
        """
        for fresh in (key in self._to_read_anew, True):
            seen = await self._gatherer.gather(key, fresh=fresh)
            if seen is None:
                return None
            observed, jobset = seen
            if observed.other_manager is not None:
                return observed, None, None
            decision = decide(observed, self._settings)
            if fresh or not _is_final(observed, decision):
                break
        return observed, jobset, decision

    def _note(self, key: Key, observed: Observed, decision: Decision, *, has_other_policy: bool) -> None:
        """Records what was done, for the metrics and for the next reconcile."""
        if decision.step is not None:
            self._gatherer.note_step_done(key)
        if decision.step is Step.RESUME and observed.jobset is not None:
            self._gatherer.note_resumed(key, observed.jobset)
        if has_other_policy:
            self._gatherer.note_policy_found(key)
        elif decision.network_policy is not None:
            self._gatherer.note_policy_applied(key)
        self._jobs.note(
            key, JobFacts.of(observed.spec, decision.status, owner=observed.owner(self._settings.owner_label))
        )
        for cause, count in restart_accounting.recorded_between(observed.status, decision.status).items():
            metrics.RESTARTS.labels(str(cause)).inc(count)
        _note_time_in_phase(observed, decision)
        phase = decision.status.phase
        if phase in TERMINAL:
            self._gatherer.forget(key)
        elif phase is not None and phase.traits & Traits.NO_PODS:
            # How pods ended is recorded in status; it says nothing about the start that may follow.
            self._gatherer.forget_start(key)

    def _later(self, key: Key, *, longest: float) -> float:
        self._failures[key] = self._failures.get(key, 0) + 1
        return backoff_seconds(self._failures[key], longest=longest)


def _note_time_in_phase(observed: Observed, decision: Decision) -> None:
    """Adds the time in the phase that a job has left."""
    before = observed.status
    if before.phase is not None and before.phase_time is not None and decision.status.phase != before.phase:
        seconds = (observed.now - before.phase_time).total_seconds()
        metrics.PHASE_SECONDS.labels(str(before.phase)).observe(max(0.0, seconds))


def _is_final(observed: Observed, decision: Decision) -> bool:
    """Whether a decision ends a job, or starts a new incarnation of it."""
    before, after = observed.status, decision.status
    has_ended = after.phase in TERMINAL and before.phase not in TERMINAL
    return has_ended or after.current_incarnation != before.current_incarnation


def _is_refusal(error: errors.ApiError, step: Step | None) -> bool:
    """Whether an error is reported to the user: it is about the JobSet, and not a short outage."""
    if step is Step.CREATE and isinstance(error, errors.Rejected | errors.Forbidden | errors.NotFound):
        return True
    return step in (Step.CREATE, Step.RESUME, Step.SUSPEND) and _is_webhook_down(error)


def _is_webhook_down(error: errors.ApiError) -> bool:
    """Whether the API server answered for a webhook that did not (k8s.io/apiserver: pkg/admission/plugin/webhook)."""
    return isinstance(error, errors.Unavailable) and "failed calling webhook" in error.message


def _refusal_message(error: errors.ApiError) -> str:
    if _is_webhook_down(error):
        return f"{error.message}; are the pods of that webhook well, for JobSet in namespace jobset-system?"
    if isinstance(error, errors.NotFound):
        return f"{error.message}; is JobSet installed ({kubernetes_names.JOBSET_API_VERSION})?"
    return error.message
