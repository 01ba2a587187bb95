"""The command that reads the logs of deleted pods from Cloud Logging. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

_GKE_CONTEXT = re.compile(r"gke_(?P<project>[^_]+)_(?P<location>[^_]+)_(?P<cluster>.+)")
"""A context name as `gcloud container clusters get-credentials` writes it."""


def gcloud_command(job: Mapping[str, Any], namespace: str, context: str) -> str:
    """The `gcloud logging read` command line for all pods that a job ever had.

    Args:
        job: The TpuTrainingJob.
        namespace: Its namespace.
        context: Of the kubeconfig; a GKE context name contains project and cluster.
    """
    metadata = job["metadata"]
    wanted = [
        'resource.type="k8s_container"',
        f'resource.labels.namespace_name="{namespace}"',
        f'resource.labels.pod_name=~"^{metadata["name"]}-"',
    ]
    if created := metadata.get("creationTimestamp"):
        wanted.append(f'timestamp>="{created}"')
    options = ["--order=asc", "--format=value(timestamp, resource.labels.pod_name, textPayload)"]
    if (gke := _GKE_CONTEXT.fullmatch(context)) is not None:
        wanted.append(f'resource.labels.cluster_name="{gke["cluster"]}"')
        options.append(f"--project={gke['project']}")
    return shlex.join(["gcloud", "logging", "read", " AND ".join(wanted), *options])
