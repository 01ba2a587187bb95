"""Jobs whose launcher serves the account of restarts in place."""

from __future__ import annotations

from tpujob_resource.models.spec import Spec


def launcher_serves_account(spec: Spec) -> bool:
    """Whether launcher 0 of a job serves the account of restarts in place; the spec need not be valid.

    The trainer includes the account in its report; another `command` may serve no report.
    """
    return spec.in_place_restarts > 0 and spec.trainer is None and spec.workers is None
