"""What the operator costs on a real API server with JobSet: many jobs at once, many at rest, and a cold start.

    python -m benchmarks.operator_load --jobs 500

Jobs are suspended, so no pod is made and nothing but operator, JobSet controller and API server works. All of them
share the machine, as do the threads that create the jobs. The chart's defaults hold, but for the Lease.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.control_plane.operator_process import OperatorProcess, grant_rights
from tools.localcluster import binaries
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources

DEFINITION = Path(__file__).parents[1] / "charts" / "tpujob-operator" / "crd"
NAMESPACE = "bench"
JOBS = f"/apis/tpujob.dev/v1alpha1/namespaces/{NAMESPACE}/tputrainingjobs"
JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
POLL_SECONDS = 0.2
REST_SECONDS = 60.0
LONGEST_SECONDS = 300.0
SETTINGS = {"OPERATOR_REPORT_INTERVAL_SECONDS": "5", "OPERATOR_PROGRESS_INTERVAL_SECONDS": "30"}


@contextmanager
def cluster(directory: Path) -> Iterator[ControlPlane]:
    """An API server with JobSet, our resource and the operator's rights."""
    binaries.build_all(print)
    with (
        ControlPlane(directory, custom_resources=[jobset_custom_resources(), DEFINITION]) as plane,
        JobSetController(plane),
    ):
        grant_rights(plane)
        plane.create_namespace(NAMESPACE)
        yield plane


def create(plane: ControlPlane, name: str) -> float:
    """Creates a suspended job; returns when that was, on the steady clock."""
    spec = {"accelerator": "cpu:2x1", "image": "example.com/image", "command": ["train"], "suspend": True}
    kind = {"apiVersion": "tpujob.dev/v1alpha1", "kind": "TpuTrainingJob"}
    plane.api.create(JOBS, {**kind, "metadata": {"name": name}, "spec": spec})
    return time.monotonic()


def latencies(plane: ControlPlane, count: int) -> list[float]:
    """Seconds from the creation of each of many jobs to its JobSet, to `POLL_SECONDS`, in ascending order.

    Raises:
        TimeoutError: some have none after `LONGEST_SECONDS`.
    """
    names = [f"job-{index:05}" for index in range(count)]
    with ThreadPoolExecutor(max_workers=8) as threads:
        created = {name: threads.submit(create, plane, name) for name in names}
        seen: dict[str, float] = {}
        until = time.monotonic() + LONGEST_SECONDS
        while len(seen) < count:
            if time.monotonic() > until:
                raise TimeoutError(f"{count - len(seen)} of {count} jobs have no JobSet")
            for jobset in plane.api.items(JOBSETS):
                seen.setdefault(jobset["metadata"]["name"], time.monotonic())
            time.sleep(POLL_SECONDS)
        return sorted(seen[name] - created[name].result() for name in names)


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


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that this share of the sorted values does not exceed."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


def settle(operator: OperatorProcess, pid: int) -> None:
    """Returns when the operator has used next to no processor time for three seconds."""
    while True:
        before = cpu_seconds(pid)
        time.sleep(3)
        if cpu_seconds(pid) - before < 0.1:
            return


def measure(plane: ControlPlane, directory: Path, count: int) -> None:
    """Prints the figures."""
    operator = OperatorProcess(plane, directory, **SETTINGS)
    with operator:
        assert operator.process is not None
        pid = operator.process.pid
        cpu, writes, reads = cpu_seconds(pid), requests(operator, "POST", "PATCH", "PUT"), requests(operator, "GET")
        found = latencies(plane, count)
        print(f"{count} suspended jobs at once, from create to JobSet:")
        print(f"  p50 {quantile(found, 0.5):.1f} s, p99 {quantile(found, 0.99):.1f} s, all {found[-1]:.1f} s")
        settle(operator, pid)
        print(f"  operator: {(cpu_seconds(pid) - cpu) * 1000 / count:.1f} ms of CPU a job")
        print(f"  requests a job: {(requests(operator, 'POST', 'PATCH', 'PUT') - writes) / count:.2f} writes, ", end="")
        print(f"{(requests(operator, 'GET') - reads) / count:.2f} reads")
        cpu, writes = cpu_seconds(pid), requests(operator, "POST", "PATCH", "PUT")
        time.sleep(REST_SECONDS)
        written = requests(operator, "POST", "PATCH", "PUT") - writes
        print(f"at rest for {REST_SECONDS:.0f} s: {written:.0f} writes, ", end="")
        print(f"{(cpu_seconds(pid) - cpu) / REST_SECONDS:.1%} of a core, {resident_mib(pid):.0f} MiB")
    started = time.monotonic()
    with operator:
        assert operator.process is not None
        pid = operator.process.pid
        print(f"cold start with them: ready after {time.monotonic() - started:.1f} s, ", end="")
        settle(operator, pid)
        print(f"at rest after {time.monotonic() - started:.1f} s, {cpu_seconds(pid):.1f} s of CPU, ", end="")
        print(f"{resident_mib(pid):.0f} MiB")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=500, help="how many jobs are created at once")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, cluster(Path(directory) / "plane") as plane:
        measure(plane, Path(directory) / "operator", arguments.jobs)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
