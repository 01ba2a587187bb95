"""The simulated kubelet ends pods as a kubelet does, seen by the requests that it makes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
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


def pod(*conditions: Object, **metadata: str) -> Object:
    """One that was put on a node, and has not started."""
    labels = {names.JOB_NAME: "llama", names.JOBSET_UID: "set"}
    return {
        "metadata": {"name": "llama-w-0-0", "namespace": "night", "uid": "u", "labels": labels, **metadata},
        "spec": {"nodeName": "all.0", "containers": [{"name": "main"}]},
        "status": {"phase": "Pending", "conditions": list(conditions)},
    }


@contextmanager
def kubelet(folder: Path, known: Object, seen: list[Object], ends: list[PodEnd]) -> Iterator[tuple[Kubelet, list[Any]]]:
    """A kubelet of a server that knows one pod, and what it has asked for so far: command and body, no reads."""
    requests: list[Any] = []

    def answer(exchange: Exchange) -> None:
        if exchange.command != "GET":
            requests.append((exchange.command, json.loads(exchange.content or b"{}")))
        exchange.reply(200, json.dumps(known).encode())

    job = PlannedJob(name="llama", kind="command", created_at=0.0, lasts=60.0)
    with HttpServer(answer) as server:
        api = Api(server.url, token="", ca_file=CertificateAuthority(folder).certificate_file)
        started = Kubelet(api, cast("Observer", _Pods(seen)), (job,), ends.append, lambda: 0.0)
        yield started, requests
        started.stop()


def test_deleted_pod_that_never_started_ends_before_it_goes(tmp_path: Path) -> None:
    # Its Job waits for that end before it lets the pod go, and makes no other pod.
    deleted, ends = pod(deletionTimestamp="now"), list[PodEnd]()
    with kubelet(tmp_path, deleted, [deleted], ends) as (_, requests):
        wait_for("the pod to be let go", lambda: "DELETE" in [command for command, _ in requests])
    said = [(command, body.get("status", {}).get("phase")) for command, body in requests]
    assert said == [("PATCH", "Failed"), ("DELETE", None)]
    assert [(end.pod, end.exit_code, end.why) for end in ends] == [("llama-w-0-0", 137, "asked")]


def test_machine_with_a_wrong_clock_leaves_the_schedulers_time(tmp_path: Path) -> None:
    # Or a pod would seem to be older than the node that it was put on.
    scheduled_at = "2026-01-01T10:00:00Z"
    known = pod({"type": "PodScheduled", "status": "True", "lastTransitionTime": scheduled_at})
    seen: list[Object] = []
    with kubelet(tmp_path, known, seen, []) as (started, requests):
        started.clock_offset_seconds = -86400
        before = datetime.now(UTC)
        seen.append(known)
        wait_for("the pod to be started", lambda: requests)
    times = {each["type"]: each["lastTransitionTime"] for each in requests[0][1]["status"]["conditions"]}
    assert times["PodScheduled"] == scheduled_at
    assert datetime.fromisoformat(times["Ready"]) < before - timedelta(hours=23)
