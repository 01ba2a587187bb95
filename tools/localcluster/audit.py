"""The requests that a user made to the API server, read from a control plane's audit log."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.localcluster.api import Object


@dataclass(frozen=True, order=True)
class Call:
    """A kind of request, in the terms of an RBAC rule."""

    verb: str
    api_group: str
    """Empty for the core group."""
    resource: str
    """With its subresource, e.g. `pods/status`."""
    namespace: str
    """Empty for a request across namespaces, or for a cluster-scoped object."""


def calls(audit_log: Path, user: str) -> set[Call]:
    """The kinds of requests that a user made for resources, refused ones included.

    Args:
        audit_log: `ControlPlane.audit_log`.
        user: The user name, e.g. `system:serviceaccount:NAMESPACE:NAME`.
    """
    found = set()
    for event in _events(audit_log):
        reference = event.get("objectRef")
        # The event of an unauthenticated request has no username.
        if event["user"].get("username") == user and reference is not None:
            parts = (reference["resource"], reference.get("subresource"))
            resource = "/".join(part for part in parts if part)
            found.add(Call(event["verb"], reference.get("apiGroup", ""), resource, reference.get("namespace", "")))
    return found


def _events(audit_log: Path) -> Iterator[Object]:
    with audit_log.open() as lines:
        for line in lines:
            # The server may still be writing the last line.
            if line.endswith("\n"):
                yield json.loads(line)
