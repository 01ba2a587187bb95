"""Where the operator's processor time goes while many jobs get their JobSets: a flame graph and a table.

    python -m benchmarks.operator_profile --jobs 500

Two bursts of suspended jobs on a real API server, each with py-spy attached to the operator: the samples of the first
become an SVG, those of the second the table. A sample belongs to the first row that matches one of its functions, so
that the rows add up; waiting threads are left out. py-spy is needed only here, from pip: the operator does not use it.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.common import cpu_seconds, parser, say
from benchmarks.operator_cluster import SETTINGS, cluster, create, pid_of, settle
from tests.harness.operator_process import OperatorProcess
from tools.localcluster.control_plane import ControlPlane

WAITING = ("select (selectors.py", "_worker (concurrent/futures/thread.py", "wait (threading.py")
"""The innermost functions of waiting threads, which py-spy does not always detect."""
PARTS = (
    ("logging", ("logging/",)),
    ("metrics page", ("prometheus_client/exposition", "http_server.py")),
    ("kopf", ("kopf/", "job_watch.py")),
    ("TLS", ("ssl.py", "sslproto.py")),
    ("JSON", ("json/", "_decoded (", "encoded (")),
    ("rules between fields", ("field_rules.py", "rules/")),
    ("models (pydantic)", ("pydantic/", "models/")),
    ("JobSet and NetworkPolicy", ("tpujob_resource/jobset/",)),
    ("decisions", ("tpujob_operator/decide/",)),
    ("client (aiohttp)", ("aiohttp/", "kubernetes/", "tpujob_operator/kube/")),
    ("cache and gathering", ("tpujob_operator/observe/", "watches.py")),
    ("queue and reconciler", ("tpujob_operator/",)),
    ("event loop", ("asyncio/",)),
    ("the rest", ("",)),
)
"""Rows, and parts of the names of a sample's functions and files; the first match counts."""


@contextmanager
def sampled(pid: int, file: Path, form: str) -> Iterator[None]:
    """Attaches py-spy to a process for a block, and writes its samples to a file."""
    command = ["py-spy", "record", "--pid", str(pid), "--rate", "200", "--format", form, "--output", str(file)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as spy:
        try:
            time.sleep(2)  # until it has found the interpreter
            yield
        finally:
            spy.send_signal(signal.SIGINT)


def burst(plane: ControlPlane, operator: OperatorProcess, prefix: str, count: int) -> float:
    """Creates jobs and waits until the operator is idle; returns its milliseconds of processor time per job."""
    before = cpu_seconds(pid_of(operator))
    with ThreadPoolExecutor(max_workers=8) as threads:
        list(threads.map(partial(create, plane, suspend=True), [f"{prefix}-{index:05}" for index in range(count)]))
    settle(pid_of(operator), limit_seconds=600)
    return (cpu_seconds(pid_of(operator)) - before) * 1000 / count


def samples(lines: list[str]) -> list[tuple[list[str], int]]:
    """Stacks, outermost function first, each with its number of samples; without waiting threads."""
    found = []
    for line in lines:
        stack, _, times = line.rpartition(" ")
        functions = stack.split(";")
        if not any(end in functions[-1] for end in WAITING):
            found.append((functions, int(times)))
    return found


def part_of(stack: list[str]) -> str:
    """The row of the table to which a sample belongs."""
    return next(name for name, marks in PARTS if any(mark in function for function in stack for mark in marks))


def table(found: list[tuple[list[str], int]], milliseconds: float) -> Iterator[str]:
    """A line for each part, largest first."""
    total = sum(times for _, times in found)
    parts: Counter[str] = Counter()
    for stack, times in found:
        parts[part_of(stack)] += times
    for name, times in parts.most_common():
        yield f"| {name} | {times / total:.0%} | {milliseconds * times / total:.2f} ms |"


def main() -> None:
    """The command."""
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=500, help="how many jobs each burst has")
    arguments.add_argument("--output", type=Path, default=Path(".cache/operator-profile.svg"), help="the flame graph")
    options = arguments.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(Path(folder) / "plane") as plane,
        OperatorProcess(plane, Path(folder) / "operator", **SETTINGS) as operator,
    ):
        with sampled(pid_of(operator), options.output, "flamegraph"):
            burst(plane, operator, "drawn", options.jobs)
        raw = Path(folder) / "samples"
        with sampled(pid_of(operator), raw, "raw"):
            took = burst(plane, operator, "counted", options.jobs)
        say(f"{took:.1f} ms of processor time a job, with the sampling; load {os.getloadavg()[0]:.1f}")
        say(
            "\n".join(
                ["| part | share | a job |", "|---|---|---|", *table(samples(raw.read_text().splitlines()), took)]
            )
        )
        say(f"flame graph: {options.output}")


if __name__ == "__main__":
    main()
