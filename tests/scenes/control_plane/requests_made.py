"""What the operator asked of the API server, request by request, from the audit log."""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.harness.operator_process import USER

WRITES = ("create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True)
class Request:
    """One request."""

    verb: str
    resource: str
    """With its subresource."""
    namespace: str
    name: str
    code: int

    @property
    def is_write(self) -> bool:
        """Whether it could change something."""
        return self.verb in WRITES


def requests_made(audit_log: Path, namespace: str, *, user: str = USER) -> list[Request]:
    """The user's requests about objects of a namespace, oldest first."""
    found = []
    with audit_log.open() as lines:
        for line in lines:
            # Cheaper than decoding them all; and the server may be in the middle of writing the last one.
            if f'"{user}"' not in line or f'"{namespace}"' not in line or not line.endswith("\n"):
                continue
            event = json.loads(line)
            reference = event.get("objectRef") or {}
            if event["user"]["username"] != user or reference.get("namespace") != namespace:
                continue
            resource = "/".join(part for part in (reference["resource"], reference.get("subresource")) if part)
            code = (event.get("responseStatus") or {}).get("code", 0)
            found.append(Request(event["verb"], resource, namespace, reference.get("name", ""), code))
    return found


def jobsets_created(audit_log: Path, namespace: str) -> list[str]:
    """The names of JobSets that were really created, one for each time."""
    requests = requests_made(audit_log, namespace)
    return [r.name for r in requests if (r.verb, r.resource, r.code) == ("create", "jobsets", 201)]
