"""How many crashes a job has had since it last got anywhere: what `restarts.crashes` limits.

JobSet restarts in place and counts for ever which restarts were not free (its failure policy says which); the operator
is the accountant. The count starts again whenever the committed step has advanced between two crashes: a job that loses
a host every few hours is well, one that crashes three times at the same step is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpujob_operator.observed import Observed

DEFAULT_CRASHES = 3


def account(observed: Observed) -> dict[str, Any]:
    """The books after what was seen: fields of the status, empty while nothing was ever charged."""
    charged = observed.jobset.charged_restarts if observed.jobset is not None else 0
    status = observed.status
    new = charged - status.get("chargedRestarts", 0)
    if new <= 0:
        return {}
    committed = _committed_step(observed)
    has_advanced = committed > status.get("crashedAtStep", -1)
    crashes = new if has_advanced else status.get("crashes", 0) + new
    return {"crashes": crashes, "chargedRestarts": charged, "crashedAtStep": committed}


def crashes(observed: Observed) -> int:
    """Crashes since the committed step last advanced."""
    count: int = {**observed.status, **account(observed)}.get("crashes", 0)
    return count


def limit(spec: Mapping[str, Any]) -> int:
    """Crashes that are put up with; the next one fails the job."""
    allowed: int = (spec.get("restarts") or {}).get("crashes", DEFAULT_CRASHES)
    return allowed


def _committed_step(observed: Observed) -> int:
    """The last committed step that anybody has told of; 0 before the first."""
    told = [observed.status.get("lastCheckpointStep"), observed.progress.committed_step if observed.progress else None]
    return max((step for step in told if step is not None), default=0)
