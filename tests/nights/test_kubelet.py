"""The simulated kubelet ends pods as a kubelet does, seen by the requests that it makes."""

import json
from datetime import UTC, datetime, timedelta
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

    def __init__(self, pods: list[Object]) -> None:
        self._pods = pods

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
        kubelet = Kubelet(api, cast("Observer", _Pods([pod])), (job,), ends.append, lambda: 0.0)
        wait_for("the pod to be let go", lambda: ("DELETE", "") in requests)
        kubelet.stop()
    assert requests == [("PATCH", "Failed"), ("DELETE", "")]
    assert [(end.pod, end.exit_code, end.why) for end in ends] == [("llama-w-0-0", 137, "asked")]


def test_machine_with_a_wrong_clock_leaves_the_schedulers_time(tmp_path: Path) -> None:
    # Or a pod would seem to be older than the node that it was put on.
    metadata: dict[str, Any] = {"name": "llama-w-0-0", "namespace": "night", "uid": "u"}
    metadata["labels"] = {names.JOB_NAME: "llama", names.JOBSET_UID: "set"}
    scheduled_at = "2026-01-01T10:00:00Z"
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled_at}
    spec = {"nodeName": "all.0", "containers": [{"name": "main"}]}
    pod = {"metadata": metadata, "spec": spec, "status": {"phase": "Pending", "conditions": [scheduled]}}
    patches: list[Any] = []

    def answer(exchange: Exchange) -> None:
        if exchange.command == "PATCH":
            patches.append(json.loads(exchange.content))
        exchange.reply(200, json.dumps(pod).encode())

    authority = CertificateAuthority(tmp_path)
    job = PlannedJob(name="llama", kind="command", created_at=0.0, lasts=60.0)
    seen: list[Object] = []
    with HttpServer(answer) as server:
        api = Api(server.url, token="", ca_file=authority.certificate_file)
        kubelet = Kubelet(api, cast("Observer", _Pods(seen)), (job,), lambda _: None, lambda: 0.0)
        kubelet.clock_offset_seconds = -86400
        before = datetime.now(UTC)
        seen.append(pod)
        wait_for("the pod to be started", lambda: patches)
        kubelet.stop()
    times = {each["type"]: each["lastTransitionTime"] for each in patches[0]["status"]["conditions"]}
    assert times["PodScheduled"] == scheduled_at
    assert datetime.fromisoformat(times["Ready"]) < before - timedelta(hours=23)
