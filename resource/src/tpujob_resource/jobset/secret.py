"""The Secret whose text the launchers of a job show each other: only its pods, and who may read Secrets, know it."""

from __future__ import annotations

from typing import Any

from tpujob_contract import kubernetes_names
from tpujob_resource.jobset.build import child_labels, owner_references
from tpujob_resource.jobset.environment import shares_secret
from tpujob_resource.models.job import TpuTrainingJob

type Object = dict[str, Any]


def build_secret(job: TpuTrainingJob) -> Object | None:
    """The Secret of a job, of all its incarnations, without its text; None: the job needs none."""
    if not shares_secret(job):
        return None
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": kubernetes_names.secret_name(str(job.metadata.uid)),
            "namespace": job.metadata.namespace,
            "labels": child_labels(job),
            "ownerReferences": owner_references(job),
        },
        "immutable": True,
    }
