"""Whether a job whose hosts all run makes progress. An alarm only: the trainer's watchdog ends hanging processes."""

from datetime import timedelta

from tpujob_operator.base.settings import Settings
from tpujob_operator.decide.causes import restart_accounting
from tpujob_operator.observe.report import Progress
from tpujob_operator.observe.state import Host, Observed
from tpujob_resource.messages.conditions import Reason, ended, sentence
from tpujob_resource.models.phases import RUNNING_PHASES
from tpujob_resource.models.status import Status
from tpujob_resource.models.times import format_time

PEERS_SECONDS = 120.0
"""Longest time between the ends of a gang's processes: they end together, except for the last writes."""
OTHER_PHASES = 3.0
"""Factor of the limit for restoring, compiling and the last save, which take longer than steps."""


def found(observed: Observed, settings: Settings) -> tuple[Reason, str] | None:
    """The stall, if there is one: its reason and what to do."""
    return _finished_alone(observed) or _makes_no_step(observed, settings)


def _finished_alone(observed: Observed) -> tuple[Reason, str] | None:
    """A process of a gang exited with 0 long ago and others run: Kubernetes counts it as done, and they wait for it."""
    if observed.spec.workers:
        return None
    first = min(
        ((host.finished_at, host.pod) for host in observed.hosts if host.finished_at is not None),
        default=None,
    )
    if first is None or all(host.succeeded for host in observed.hosts):
        return None
    finished_at, pod = first
    if observed.now - finished_at < timedelta(seconds=PEERS_SECONDS):
        return None
    reason = Reason.PEERS_FINISHED
    return reason, sentence(reason, pod=pod, since=format_time(finished_at))


def _makes_no_step(observed: Observed, settings: Settings) -> tuple[Reason, str] | None:
    if observed.status.phase not in RUNNING_PHASES:
        return None  # the hosts have just come up, and the time counts from now: see `status`
    if restart_accounting.account(observed):
        return None  # likewise here: the restart was not observed while it happened
    since, lead = observed.status.progress.step_time, _lead(observed)
    progress = observed.progress
    # A program without a trainer block may report nothing; one that reports is judged by its steps.
    reports = bool(observed.spec.trainer) or (progress is not None and observed.status.step is not None)
    if not reports or since is None or lead is None or lead.succeeded:
        return None
    limit = timedelta(seconds=settings.stalled_after_seconds)
    if progress is None or progress.phase != "training":
        limit *= OTHER_PHASES
    if observed.now - since < limit:
        return None
    if progress is None:
        return Reason.NO_REPORT, sentence(Reason.NO_REPORT, pod=lead.pod, since=format_time(since))
    reported = reported_step(observed.status, progress)
    if reported is not None and reported != observed.status.step:
        return None
    step = "none" if reported is None else reported
    message = sentence(Reason.NO_STEP, since=format_time(since), step=step, phase=progress.phase, pod=lead.pod)
    behind = f" Behind the others: {ended(progress.straggler_message)}" if progress.straggler_message else ""
    return Reason.NO_STEP, f"{message}{behind}"


def reported_step(status: Status, progress: Progress) -> int | None:
    """The step in a report; None: it has none.

    A process reports 0 until it has restored a checkpoint, even if it ends before that: the known step stays.
    """
    has_restored_none = progress.step == 0 and progress.phase in ("starting", "restoring", "stopping", "failed")
    return status.step or 0 if has_restored_none else progress.step


def _lead(observed: Observed) -> Host | None:
    return next((host for host in observed.hosts if (host.slice_index, host.host_index) == (0, 0)), None)
