"""What the measurements of the operator on an API server share: the cluster, its clock, and what a process uses."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

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
    """An API server with JobSet, our resource and the operator's rights."""
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
    kind = {"apiVersion": "tpujob.dev/v1alpha1", "kind": "TpuTrainingJob"}
    path = f"/apis/tpujob.dev/v1alpha1/namespaces/{namespace}/tputrainingjobs"
    plane.api.create(path, {**kind, "metadata": {"name": name}, "spec": fields})


class Creations:
    """When objects of both namespaces were created, by the clock of the API server: its audit log costs no request."""

    def __init__(self, plane: ControlPlane, *, resource: str = "tputrainingjobs") -> None:
        """Begins at the start of the log; the resource is the one of the jobs."""
        self._lines = plane.audit_log.open()
        self._rest = ""
        self.times: dict[str, dict[str, float]] = {resource: {}, "jobsets": {}}
        """By resource and name: of a job when the request came, of a JobSet when it was answered; in seconds."""

    def read(self) -> None:
        """Takes in what was written since."""
        self._rest += self._lines.read()
        *lines, self._rest = self._rest.split("\n")
        for line in lines:
            # Whoever applies what is not there creates it with a PATCH.
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


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def requests(operator: OperatorProcess, *methods: str) -> float:
    """How many requests the operator has made, by method."""
    return sum(operator.metric("tpujob_operator_api_requests_total", f'method="{method}"') for method in methods)


def pid_of(operator: OperatorProcess) -> int:
    """The process of an operator that runs."""
    assert operator.process is not None
    return operator.process.pid


def settle(operator: OperatorProcess, *, limit_seconds: float) -> bool:
    """Returns when the operator has used next to no processor time for three seconds; whether that came in time."""
    until = time.monotonic() + limit_seconds
    while time.monotonic() < until:
        before = cpu_seconds(pid_of(operator))
        time.sleep(3)
        if cpu_seconds(pid_of(operator)) - before < 0.1:
            return True
    return False


def say(line: str) -> None:
    """Prints a line at once: a run that is ended keeps what it has found."""
    print(line, flush=True)
