"""Which jobs have a launcher that tells of restarts in place."""

from __future__ import annotations

from tpujob_resource.models.spec import Spec


def launcher_tells(spec: Spec) -> bool:
    """Whether launcher 0 of a job, its spec valid or not, serves what it has counted of restarts in place.

    The trainer tells it in its report; any other `command` may serve none.
    """
    return spec.in_place_restarts > 0 and spec.trainer is None and spec.workers is None
