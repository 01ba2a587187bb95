"""The controller that runs a job: this operator, or the one that `spec.managedBy` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpujob_contract import kubernetes_names


def other_manager(managed_by: str | None) -> str | None:
    """The controller that runs a job; None: this operator does.

    Args:
        managed_by: `spec.managedBy`; None: it is missing.
    """
    return managed_by if managed_by not in (None, "", kubernetes_names.OPERATOR) else None


def prebuilt_workload(metadata: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The Workload that MultiKueue has copied to this cluster with a job, for the metadata of the job's JobSet.

    Args:
        metadata: Of the job; its Workload is named by a label up to Kueue 0.17, by an annotation since 0.18.

    Returns:
        `labels` and `annotations`, each with the name if it was there: Kueue reads it where it has written it.
    """
    name = kubernetes_names.KUEUE_PREBUILT_WORKLOAD
    given = {kind: metadata.get(kind) or {} for kind in ("labels", "annotations")}
    return {kind: {name: values[name]} if name in values else {} for kind, values in given.items()}
