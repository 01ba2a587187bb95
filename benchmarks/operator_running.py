"""What jobs that train cost the operator on a real API server with JobSet: processor time, status writes, memory.

    python -m benchmarks.operator_running --jobs 50 200 500 1000 --hosts 64

JobSet's and Kubernetes' own controllers create Jobs and pods. There is no kubelet: threads of this program set the pods
to running, and one server answers for process 0 of every job, with a step that grows each second. The settings are the
chart's defaults, except the Lease. With several numbers of jobs, each is measured on the way to the next, so that a
machine that cannot run the largest shows how the cost grows up to there.
"""

import http.client
import json
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common import cpu_seconds, parser, resident_mib, say
from benchmarks.operator_cluster import NAMESPACE, SETTINGS, WRITES, cluster, create, pid_of, requests
from tests.harness.operator_process import OperatorProcess
from tests.scenes.control_plane.reporting import reporting
from tools.localcluster.control_plane import ControlPlane

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PAGE = 500
PENDING = f"{PODS}?fieldSelector=status.phase%3DPending&limit={PAGE}"
ADDRESS = "127.77.0.1"
"""The address of all pods."""
RUNNING = {
    "phase": "Running",
    "startTime": "2030-01-01T00:00:00Z",
    "podIP": ADDRESS,
    "podIPs": [{"ip": ADDRESS}],
    "conditions": [{"type": kind, "status": "True"} for kind in ("Initialized", "ContainersReady", "Ready")],
    "containerStatuses": [
        {
            "name": "main",
            "image": "image",
            "imageID": "",
            "restartCount": 0,
            "ready": True,
            "started": True,
            "state": {"running": {"startedAt": "2030-01-01T00:00:00Z"}},
        }
    ],
}

STATUS = json.dumps({"status": RUNNING})


def report() -> dict[str, object]:
    """The report of process 0 of a job; its step is the monotonic clock in seconds."""
    step = int(time.monotonic())
    known = {"phase": "training", "step": step, "committed_step": step - step % 100, "loss": 2.5}
    return {**known, "tokens_per_second": 1000.0 + step % 7}


class Kubelet:
    """Sets pods to running, over one connection per thread: handshakes would cost more than the writes."""

    def __init__(self, plane: ControlPlane) -> None:
        """Keeps the control plane; connects on the first write of each thread."""
        self._plane = plane
        self._context = ssl.create_default_context(cafile=str(plane.ca_file))
        self._local = threading.local()

    def run(self, pod: dict[str, Any]) -> None:
        """Sets a pod to running.

        Raises:
            RuntimeError: The API server refused.
        """
        headers = {"Authorization": f"Bearer {self._plane.admin_token}", "Content-Type": "application/merge-patch+json"}
        connection = self._connection()
        connection.request("PATCH", f"{PODS}/{pod['metadata']['name']}/status", STATUS, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{pod['metadata']['name']} cannot run: {answer.status} {text[:200]!r}")

    def _connection(self) -> http.client.HTTPSConnection:
        found: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if found is None:
            found = http.client.HTTPSConnection(self._plane.host, self._plane.port, context=self._context, timeout=60)
            self._local.connection = found
        return found


def start(plane: ControlPlane, jobs: Sequence[int], hosts: int, *, limit_seconds: float) -> int:
    """Creates jobs and sets their pods to running, until all run or the time is over; returns the number of pods."""
    began, running = time.monotonic(), 0
    spoken, wanted = began, len(jobs) * hosts
    create_all(plane, jobs, hosts)
    kubelet = Kubelet(plane)
    with ThreadPoolExecutor(max_workers=8) as threads:
        while running < wanted and time.monotonic() - began < limit_seconds:
            pending = plane.api.items(PENDING)
            running += len(list(threads.map(kubelet.run, pending)))
            if len(pending) < PAGE:
                # Each list request makes the API server go through all pods.
                time.sleep(1)
            if time.monotonic() - spoken > 60:
                spoken = time.monotonic()
                say(f"  {running} of {wanted} further pods run after {spoken - began:.0f} s")
    return running


def create_all(plane: ControlPlane, jobs: Sequence[int], hosts: int) -> None:
    """Creates jobs with the given indices."""
    with ThreadPoolExecutor(max_workers=8) as threads:
        list(threads.map(partial(create, plane, accelerator=f"cpu:{hosts}x1"), map(name_of, jobs)))


def name_of(index: int) -> str:
    """The name of a job."""
    return f"job-{index:05}"


def wait_until_all_run(operator: OperatorProcess, jobs: int, *, limit_seconds: float) -> float:
    """Waits until the operator reports all jobs as Running, or the time is over; returns how many are."""
    until = time.monotonic() + limit_seconds
    while True:
        running = operator.metric("tpujob_operator_job_phase", 'phase="Running"')
        if running >= jobs or time.monotonic() > until:
            return running
        time.sleep(2)


def say_what_runs(plane: ControlPlane) -> None:
    """Prints the processor time and memory that the cluster has used until now."""
    programs = ("etcd", "kube-apiserver", "kube-controller-manager")
    used = [
        f"{cpu_seconds(plane.pid_of(name)):.0f} s and {resident_mib(plane.pid_of(name)):.0f} MiB" for name in programs
    ]
    say(
        f"  load {os.getloadavg()[0]:.0f}; until now "
        + ", ".join(f"{name} {of}" for name, of in zip(programs, used, strict=True))
    )


def measure(operator: OperatorProcess, *, seconds: float) -> None:
    """Prints the operator's usage while jobs only make steps."""
    pid = pid_of(operator)
    cpu, writes, reads = cpu_seconds(pid), requests(operator, *WRITES), requests(operator, "GET")
    time.sleep(seconds)
    used = (cpu_seconds(pid) - cpu) / seconds
    written, read = requests(operator, *WRITES) - writes, requests(operator, "GET") - reads
    say(f"for {seconds:.0f} s: {used:.1%} of a core, {resident_mib(pid):.0f} MiB")
    say(f"  {written / seconds:.2f} writes a second, {read / seconds:.2f} reads a second, beside the reports")


def main() -> None:
    """The command."""
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, nargs="+", default=[20], help="how many jobs train, in ascending order")
    arguments.add_argument("--hosts", type=int, default=64, help="pods of each of them")
    arguments.add_argument("--limit-seconds", type=float, default=3600, help="the longest that each start may take")
    arguments.add_argument("--seconds", type=float, default=120, help="how long the operator is watched")
    options = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(Path(folder) / "plane") as plane,
        reporting(report, address=ADDRESS),
        OperatorProcess(plane, Path(folder) / "operator", **SETTINGS) as operator,
    ):
        for before, jobs in pairwise([0, *options.jobs]):
            began = time.monotonic()
            pods = start(plane, range(before, jobs), options.hosts, limit_seconds=options.limit_seconds)
            running = wait_until_all_run(operator, jobs, limit_seconds=options.limit_seconds)
            took = time.monotonic() - began
            say(f"{running:.0f} of {jobs} jobs run, the last {pods} pods after {took:.0f} s")
            say_what_runs(plane)
            # Waits for one whole round of reports, so that the first steps are over.
            time.sleep(float(SETTINGS["OPERATOR_PROGRESS_INTERVAL_SECONDS"]))
            measure(operator, seconds=options.seconds)


if __name__ == "__main__":
    main()
