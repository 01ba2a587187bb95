"""Node objects without machines, for tests of lost hosts.

Nothing updates their heartbeats, and the controller manager of a control plane without nodes ignores that for 24 h.
"""

import datetime
from collections.abc import Mapping

from tools.localcluster.api import Api, Object


def create_node(api: Api, name: str, labels: Mapping[str, str] | None = None) -> Object:
    """Creates a node whose Ready condition is true."""
    api.create("/api/v1/nodes", {"metadata": {"name": name, "labels": dict(labels or {})}})
    return set_node_ready(api, name, ready=True)


def set_node_ready(api: Api, name: str, *, ready: bool) -> Object:
    """Writes the node's Ready condition, as its kubelet would."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "Ready",
        "status": str(ready),
        "reason": "KubeletReady" if ready else "KubeletNotReady",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    return api.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [condition]}})


def delete_node(api: Api, name: str) -> None:
    """Deletes the node object, as a cloud does when the machine is gone."""
    api.delete(f"/api/v1/nodes/{name}")
