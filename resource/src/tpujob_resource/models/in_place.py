"""Which jobs have a launcher that serves the account of restarts in place."""

from __future__ import annotations

from tpujob_resource.models.spec import Spec


def launcher_serves_account(spec: Spec) -> bool:
    """Whether launcher 0 of a job serves the account of restarts in place; the spec need not be valid.

    The trainer has the account in its report; any other `command` may serve no report.
    """
    return spec.in_place_restarts > 0 and spec.trainer is None and spec.workers is None
