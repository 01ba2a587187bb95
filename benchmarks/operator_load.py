"""What the operator costs on a real API server with JobSet: many jobs at once, many at rest, a cold start, a failover.

    python -m benchmarks.operator_load --jobs 500

Jobs are suspended, so no pods are created, and only the operator, the JobSet controller and the API server work. They
share the machine with the threads that create the jobs. The settings are the chart's defaults, except the Lease, which
only the failover uses. Each figure is printed as soon as it is known; a measurement that exceeds `--limit-seconds` is
reported with its progress, and the next one continues from there.
"""

import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.common import cpu_seconds, parser, resident_mib, say
from benchmarks.operator_cluster import (
    OTHER_NAMESPACE,
    SETTINGS,
    WRITES,
    Creations,
    cluster,
    create,
    pid_of,
    requests,
    settle,
)
from tests.harness.operator_process import OperatorProcess
from tools.localcluster.control_plane import ControlPlane

POLL_SECONDS = 0.2
ELSEWHERE = "elsewhere"
"""A job in the other namespace, created when half of the jobs have their JobSets."""


def latencies(
    plane: ControlPlane,
    make: Callable[[str], None],
    count: int,
    *,
    limit_seconds: float,
    resource: str = "tputrainingjobs",
    middle: Callable[[str], None] | None = None,
) -> tuple[list[float], float]:
    """Creates jobs; returns the sorted seconds until the JobSet of each job that got one.

    Also returns those of the job `ELSEWHERE`, which is created in the middle; infinite: it got none.

    Args:
        plane: The control plane.
        make: Creates a job with a name.
        count: The number of jobs.
        limit_seconds: The longest wait.
        resource: That of the jobs.
        middle: Creates `ELSEWHERE`; None: there is none.
    """
    creations = Creations(plane, resource=resource)
    jobs, jobsets = creations.times[resource], creations.times["jobsets"]
    until = time.monotonic() + limit_seconds
    with ThreadPoolExecutor(max_workers=8) as threads:
        done = [threads.submit(make, f"job-{index:05}") for index in range(count)]
        while len(jobsets) < count + (middle is not None) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
            creations.read()
            if middle is not None and ELSEWHERE not in jobs and len(jobsets) >= count / 2:
                middle(ELSEWHERE)
        for each in done:
            each.result()
    creations.read()
    took = {name: jobsets[name] - jobs[name] for name in jobsets}
    elsewhere = took.pop(ELSEWHERE, math.inf)
    return sorted(took.values()), elsewhere


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that is not exceeded by a given share of the sorted values."""
    return values[max(0, math.ceil(share * len(values)) - 1)]


def measure_creation(plane: ControlPlane, operator: OperatorProcess, count: int, *, limit_seconds: float) -> None:
    """Prints the latency of jobs that are created at once, and the cost of each."""
    pid = pid_of(operator)
    cpu, writes, reads = cpu_seconds(pid), requests(operator, *WRITES), requests(operator, "GET")
    make = partial(create, plane, suspend=True)
    middle = partial(make, namespace=OTHER_NAMESPACE)
    found, elsewhere = latencies(plane, make, count, limit_seconds=limit_seconds, middle=middle)
    say(f"{count} suspended jobs at once, from create to JobSet:")
    say(f"  p50 {quantile(found, 0.5):.1f} s, p99 {quantile(found, 0.99):.1f} s, the slowest {found[-1]:.1f} s")
    say(f"  a job of another namespace, created in the middle: {elsewhere:.1f} s")
    if len(found) < count:
        say(f"  {count - len(found)} of them had none after the limit of {limit_seconds:.0f} s")
    if not settle(pid_of(operator), limit_seconds=limit_seconds):
        say(f"  not at rest after another {limit_seconds:.0f} s")
    say(f"  operator: {(cpu_seconds(pid) - cpu) * 1000 / count:.1f} ms of CPU a job")
    written, read = requests(operator, *WRITES) - writes, requests(operator, "GET") - reads
    say(f"  requests a job: {written / count:.2f} writes, {read / count:.2f} reads")


def measure_rest(operator: OperatorProcess, *, seconds: float) -> None:
    """Prints the cost of idle jobs."""
    pid = pid_of(operator)
    cpu, writes = cpu_seconds(pid), requests(operator, *WRITES)
    time.sleep(seconds)
    written, used = requests(operator, *WRITES) - writes, (cpu_seconds(pid) - cpu) / seconds
    say(f"at rest for {seconds:.0f} s: {written:.0f} writes, {used:.1%} of a core, {resident_mib(pid):.0f} MiB")


def measure_cold_start(operator: OperatorProcess, *, limit_seconds: float) -> None:
    """Prints how long an operator takes to start with all existing jobs."""
    started = time.monotonic()
    with operator:
        ready = time.monotonic() - started
        is_at_rest = settle(pid_of(operator), limit_seconds=limit_seconds)
        at_rest = f"at rest after {time.monotonic() - started:.1f} s" if is_at_rest else "not at rest at the limit"
        pid = pid_of(operator)
        used, memory = cpu_seconds(pid), resident_mib(pid)
        say(f"cold start with them: ready after {ready:.1f} s, {at_rest}, {used:.1f} s of CPU, {memory:.0f} MiB")


def measure_failover(plane: ControlPlane, directory: Path, *, limit_seconds: float) -> None:
    """Prints the latency of a job that is created when the leader is killed, while another operator is on standby."""
    with ExitStack() as stack:
        operators = []
        for name in ("one", "other"):
            election = {"OPERATOR_LEADER_ELECTION": "true", "OPERATOR_IDENTITY": name}
            operator = stack.enter_context(OperatorProcess(plane, directory / name, **SETTINGS, **election))
            settle(pid_of(operator), limit_seconds=limit_seconds)
            operators.append(operator)
        leader, standby = sorted(operators, key=lambda each: -each.metric("tpujob_operator_leader"))
        killed = time.monotonic()
        os.kill(pid_of(leader), signal.SIGKILL)
        create(plane, "after-the-leader", suspend=True)
        creations = Creations(plane)
        until = killed + limit_seconds
        leads = math.inf
        while "after-the-leader" not in creations.times["jobsets"] and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
            creations.read()
            if standby.metric("tpujob_operator_leader"):
                leads = min(leads, time.monotonic() - killed)
        took = time.monotonic() - killed
        say(f"failover with them: another leads after {leads:.1f} s, a new job has its JobSet after {took:.1f} s")


def main() -> None:
    """The command."""
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=500, help="how many jobs are created at once")
    arguments.add_argument("--limit-seconds", type=float, default=3600, help="the longest that one measurement waits")
    arguments.add_argument("--rest-seconds", type=float, default=60, help="how long the operator is watched at rest")
    options = arguments.parse_args()
    limit = options.limit_seconds
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder) / "plane") as plane:
        operator = OperatorProcess(plane, Path(folder) / "operator", **SETTINGS)
        with operator:
            measure_creation(plane, operator, options.jobs, limit_seconds=limit)
            measure_rest(operator, seconds=options.rest_seconds)
        measure_cold_start(operator, limit_seconds=limit)
        measure_failover(plane, Path(folder), limit_seconds=limit)


if __name__ == "__main__":
    main()
