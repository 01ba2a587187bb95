"""The simulated kubelet ends pods as a kubelet does, seen by the requests that it makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from tests.fakes import Exchange, HttpServer
from tests.nights.history import PodEnd
from tests.nights.kubelet import Kubelet
from tests.nights.observer import Observer
from tests.nights.schedule import PlannedJob
from tools.localcluster.api import Api, Object
from tools.localcluster.certificates import CertificateAuthority
from tools.localcluster.waiting import wait_for
from tpujob_contract import kubernetes_names as names


class _Pods:
    """What an observer has seen."""

    def __init__(self, *pods: Object) -> None:
        self._pods = list(pods)

    def now(self, _: str) -> list[Object]:
        return self._pods


def test_deleted_pod_that_never_started_ends_before_it_goes(tmp_path: Path) -> None:
    # Its Job waits for that end before it lets the pod go, and makes no other pod.
    metadata: dict[str, Any] = {"name": "llama-w-0-0", "namespace": "night", "uid": "u", "deletionTimestamp": "now"}
    metadata["labels"] = {names.JOB_NAME: "llama", names.JOBSET_UID: "set"}
    spec = {"nodeName": "all.0", "containers": [{"name": "main"}]}
    pod = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
    requests: list[tuple[str, str]] = []

    def answer(exchange: Exchange) -> None:
        body = json.loads(exchange.content or b"{}")
        if exchange.command != "GET":
            requests.append((exchange.command, body.get("status", {}).get("phase", "")))
        exchange.reply(200, json.dumps(pod).encode())

    ends: list[PodEnd] = []
    authority = CertificateAuthority(tmp_path)
    job = PlannedJob(name="llama", kind="command", created_at=0.0, lasts=60.0)
    with HttpServer(answer) as server:
        api = Api(server.url, token="", ca_file=authority.certificate_file)
        kubelet = Kubelet(api, cast("Observer", _Pods(pod)), (job,), ends.append, lambda: 0.0)
        wait_for("the pod to be let go", lambda: ("DELETE", "") in requests)
        kubelet.stop()
    assert requests == [("PATCH", "Failed"), ("DELETE", "")]
    assert [(end.pod, end.exit_code, end.why) for end in ends] == [("llama-w-0-0", 137, "asked")]
