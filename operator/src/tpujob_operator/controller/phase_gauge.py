"""How many jobs are in which phase, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tpujob_operator import metrics
from tpujob_operator.api.status import Phase
from tpujob_operator.observe.terminations import Key


class PhaseCounts:
    """The phase of every job that was looked at and is not gone."""

    def __init__(self) -> None:
        self._phases: dict[Key, str] = {}

    def note(self, key: Key, phase: str) -> None:
        """This job is in this phase now."""
        if self._phases.get(key) != phase:
            self._phases[key] = phase
            self._publish()

    def forget(self, key: Key) -> None:
        """This job is gone."""
        if self._phases.pop(key, None) is not None:
            self._publish()

    def keep_only(self, phases: Mapping[Key, str]) -> None:
        """These are all the jobs there are; one that no reconcile has named is in the given phase, if any."""
        self._phases = {
            key: self._phases.get(key, phase) for key, phase in phases.items() if phase or key in self._phases
        }
        self._publish()

    def _publish(self) -> None:
        counts = Counter(self._phases.values())
        for phase in Phase:
            metrics.JOBS.labels(str(phase)).set(counts[phase])
