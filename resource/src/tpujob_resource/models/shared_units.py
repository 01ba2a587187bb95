"""Which jobs have workers that share a list of units, and so may come and go."""

from __future__ import annotations

from tpujob_resource.models.spec import Spec

UNIT_TASKS = ("extract", "score", "embed", "generate")
"""Tasks of the trainer in which workers share units (`trainer.task`)."""


def shares_units(spec: Spec) -> bool:
    """Whether the workers of a spec, valid or not, divide a list of units between them.

    Each of them knows when every unit is done.
    """
    return spec.workers is not None and spec.trainer is not None and spec.trainer.get("task") in UNIT_TASKS


def is_elastic(spec: Spec) -> bool:
    """Whether `workers` of a spec, valid or not, changes in a running job.

    Workers of a command know their number from the start, and a queue has admitted that number.
    """
    return shares_units(spec) and spec.queue is None
