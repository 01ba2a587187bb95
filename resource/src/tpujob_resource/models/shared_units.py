"""Jobs whose workers share a list of units, so that their number may change."""

from __future__ import annotations

from tpujob_contract.corpus_tasks import CORPUS_TASKS
from tpujob_resource.models.spec import Spec


def shares_units(spec: Spec) -> bool:
    """Whether the workers of a spec, valid or not, share a list of units.

    Each of them knows when all units are done.
    """
    return spec.workers is not None and spec.trainer is not None and spec.trainer.get("task") in CORPUS_TASKS


def is_elastic(spec: Spec) -> bool:
    """Whether `workers` of a spec, valid or not, may change in a running job.

    Workers of a command get their number at the start, and a queue has admitted a fixed number.
    """
    return shares_units(spec) and spec.queue is None
