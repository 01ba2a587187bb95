"""The controller that runs a job: this operator, or the one that `spec.managedBy` names."""

from __future__ import annotations

from tpujob_contract import kubernetes_names


def other_manager(managed_by: str | None) -> str | None:
    """The controller that runs a job; None: this operator does.

    Args:
        managed_by: `spec.managedBy`; None: it is missing.
    """
    return managed_by if managed_by not in (None, "", kubernetes_names.OPERATOR) else None
