"""The metrics of each job: its phase, its hosts and chips, its restarts by cause.

Only the leader exports them. The other operators learn a job's phase minutes late, from lists, and two values for one
job would raise an alert about a phase that has passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tpujob_operator.base import metrics
from tpujob_operator.observe.terminations import Key
from tpujob_resource.models.phases import HOLDS_MACHINES, WAITS_FOR_MACHINES, Phase
from tpujob_resource.models.restart_causes import RESTARTS
from tpujob_resource.models.status import Status
from tpujob_resource.models.stored import StoredSpec


@dataclass(frozen=True, kw_only=True)
class JobFacts:
    """The values of one job's metrics."""

    phase: str
    phase_since: float | None = None
    """When it entered that phase, in Unix time; None: unknown."""
    accelerator: str = ""
    """As the spec names it."""
    hosts: int = 0
    hosts_ready: int = 0
    chips: int = 0
    """TPU chips of all its hosts; 0 for `cpu` and for an unknown accelerator."""
    queue: str = ""
    owner: str = ""
    """Value of the job's owner label; empty without one."""
    is_spot: bool = False
    restarts: tuple[tuple[str, int], ...] = ()
    """By cause."""

    @classmethod
    def of(cls, spec: StoredSpec, status: Status, *, owner: str = "") -> JobFacts:
        """The facts of a job with this spec, valid or not, this status, and this value of its owner label."""
        hosts = status.hosts or 0
        return cls(
            phase=status.phase or "",
            phase_since=None if status.phase_time is None else status.phase_time.timestamp(),
            accelerator=spec.accelerator,
            hosts=hosts,
            hosts_ready=status.hosts_ready or 0,
            chips=hosts * spec.chips_per_host,
            queue=spec.queue or "",
            owner=owner,
            is_spot=spec.is_spot,
            restarts=tuple((str(cause), status.get(cause.status_field) or 0) for cause in RESTARTS),
        )


class JobGauges(Collector):
    """Collects the metrics of all existing jobs."""

    def __init__(self, leads: Callable[[], bool] = lambda: True) -> None:
        """`leads`: whether this process is the leader, which alone exports the metrics."""
        self._leads = leads
        self._jobs: dict[Key, JobFacts] = {}

    def note(self, key: Key, facts: JobFacts) -> None:
        """Sets the facts of this job."""
        self._jobs[key] = facts

    def forget(self, key: Key) -> None:
        """Drops a job that is gone."""
        self._jobs.pop(key, None)

    def keep_only(self, jobs: Mapping[Key, JobFacts], namespace: str | None = None) -> None:
        """Replaces the set of jobs of a namespace, or of all namespaces; facts that are already known stay."""
        others = {key: facts for key, facts in self._jobs.items() if namespace not in (None, key[0])}
        self._jobs = others | {
            key: self._jobs.get(key, facts) for key, facts in jobs.items() if facts.phase or key in self._jobs
        }

    def collect(self) -> Iterable[Metric]:
        """The families, without samples if another operator leads."""
        jobs = sorted(self._jobs.items()) if self._leads() else []
        yield self._by_phase(jobs)
        phases = metrics.JOB_PHASE.family()
        since = metrics.JOB_PHASE_SINCE.family()
        hosts = metrics.JOB_HOSTS.family()
        ready = metrics.JOB_HOSTS_READY.family()
        chips = metrics.JOB_CHIPS.family()
        by_phase = metrics.JOB_PHASE_CHIPS.family()
        restarts = metrics.JOB_RESTARTS.family()
        for key, facts in jobs:
            phases.add_metric([*key, facts.phase], 1)
            if facts.phase_since is not None:
                since.add_metric([*key, facts.phase], facts.phase_since)
            hosts.add_metric(key, facts.hosts)
            ready.add_metric(key, facts.hosts_ready)
            chips.add_metric([*key, facts.accelerator], facts.chips if facts.phase in HOLDS_MACHINES else 0)
            if facts.chips and facts.phase in HOLDS_MACHINES + WAITS_FOR_MACHINES:
                spot = str(facts.is_spot).lower()
                labels = [*key, facts.accelerator, facts.queue, facts.owner, spot, facts.phase]
                by_phase.add_metric(labels, facts.chips)
            for cause, count in facts.restarts:
                restarts.add_metric([*key, cause], count)
        yield from (phases, since, hosts, ready, chips, by_phase, restarts)

    def _by_phase(self, jobs: list[tuple[Key, JobFacts]]) -> Metric:
        family = metrics.JOBS.family()
        if self._leads():
            counts = Counter(facts.phase for _, facts in jobs)
            for phase in Phase:
                family.add_metric([str(phase)], counts[phase])
        return family
