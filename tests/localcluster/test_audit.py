"""The audit log tells what one user asked for, and is read while the server writes it."""

import json
from pathlib import Path

from tools.localcluster.audit import Call, calls

OPERATOR = "system:serviceaccount:tpujob:operator"


def event(user: dict[str, str]) -> str:
    reference = {"resource": "pods", "subresource": "status", "namespace": "team", "name": "llama"}
    return json.dumps({"verb": "get", "user": user, "objectRef": reference}) + "\n"


def test_requests_of_others_and_of_nobody_are_left_out(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    # A request whose credentials are refused is audited with an empty user.
    log.write_text(event({"username": OPERATOR}) + event({"username": "kubelet"}) + event({}))

    assert calls(log, OPERATOR) == {Call("get", "", "pods/status", "team")}


def test_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(event({"username": OPERATOR}) + '{"verb": "del')

    assert calls(log, OPERATOR) == {Call("get", "", "pods/status", "team")}
