"""Shared by the measurements of the operator on an API server: the cluster, its clock, and the usage of processes."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.common import cpu_seconds, say
from tests.harness.operator_process import OperatorProcess, grant_rights
from tools.localcluster import binaries
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources

DEFINITION = Path(__file__).parents[1] / "charts" / "tpujob-operator" / "crd"
NAMESPACE = "bench"
OTHER_NAMESPACE = f"{NAMESPACE}-other"
SETTINGS = {"OPERATOR_REPORT_INTERVAL_SECONDS": "5", "OPERATOR_PROGRESS_INTERVAL_SECONDS": "30"}
"""The chart's defaults."""
WRITES = ("POST", "PATCH", "PUT")


@contextmanager
def cluster(directory: Path) -> Iterator[ControlPlane]:
    """Runs an API server with JobSet, our CRD and the operator's rights, for a block."""
    binaries.build_all(say)
    with (
        ControlPlane(directory, custom_resources=[jobset_custom_resources(), DEFINITION]) as plane,
        JobSetController(plane),
    ):
        grant_rights(plane)
        plane.create_namespace(NAMESPACE)
        plane.create_namespace(OTHER_NAMESPACE)
        yield plane


def create(plane: ControlPlane, name: str, *, namespace: str = NAMESPACE, **spec: Any) -> None:
    """Creates a job; other keywords are fields of its spec."""
    fields = {"accelerator": "cpu:2x1", "image": "example.com/image", "command": ["train"], **spec}
    kind = {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob"}
    path = f"/apis/tpujob.dev/v1beta1/namespaces/{namespace}/tputrainingjobs"
    plane.api.create(path, {**kind, "metadata": {"name": name}, "spec": fields})


class Creations:
    """The creation times of objects in both namespaces, from the API server's audit log, which needs no requests."""

    def __init__(self, plane: ControlPlane, *, resource: str = "tputrainingjobs") -> None:
        """Starts at the beginning of the log; `resource` is that of the jobs."""
        self._lines = plane.audit_log.open()
        self._rest = ""
        self.times: dict[str, dict[str, float]] = {resource: {}, "jobsets": {}}
        """Unix time by resource and name: of a job when its request arrived, of a JobSet when it was answered."""

    def read(self) -> None:
        """Reads the new lines of the log."""
        self._rest += self._lines.read()
        *lines, self._rest = self._rest.split("\n")
        for line in lines:
            # By the status code, not the method: a server-side apply of a new object creates it with a PATCH.
            if '"code":201' in line and f'"namespace":"{NAMESPACE}' in line:
                self._note(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        reference = event["objectRef"]
        times = self.times.get(reference["resource"])
        if times is None or "subresource" in reference or event["responseStatus"]["code"] != 201:
            return
        is_jobset = reference["resource"] == "jobsets"
        moment = event["stageTimestamp" if is_jobset else "requestReceivedTimestamp"]
        times[reference["name"]] = datetime.fromisoformat(moment).timestamp()


def requests(operator: OperatorProcess, *methods: str) -> float:
    """The number of requests that the operator has made with the given methods."""
    return sum(operator.metric("tpujob_operator_api_requests_total", f'method="{method}"') for method in methods)


def pid_of(operator: OperatorProcess) -> int:
    """The process id of a running operator."""
    assert operator.process is not None
    return operator.process.pid


def settle(pid: int, *, limit_seconds: float) -> bool:
    """Waits until a process is idle for three seconds; returns whether that happened within the limit."""
    until = time.monotonic() + limit_seconds
    while time.monotonic() < until:
        before = cpu_seconds(pid)
        time.sleep(3)
        if cpu_seconds(pid) - before < 0.1:
            return True
    return False
