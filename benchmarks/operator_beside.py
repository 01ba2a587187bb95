"""Many jobs at once, beside Kubeflow Trainer: both make one JobSet of each, in turns, each on an API server of its own.

    python -m benchmarks.operator_beside --jobs 500 --rounds 2

Jobs are suspended and have two processes. Prints, for each turn, the seconds from the creation of a job to its JobSet,
and the processor time per job of each program, until the last job had its JobSet: on two cores, a job takes at least
half of the sum.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import kubeflow_trainer, operator_cluster
from benchmarks.common import cpu_seconds, parser, say
from benchmarks.operator_cluster import DEFINITION, NAMESPACE, SETTINGS, settle
from benchmarks.operator_load import latencies, quantile
from tests.harness import operator_process
from tools.localcluster import binaries
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.jobset import JobSetController, jobset_custom_resources

PROGRAMS = ("kube-apiserver", "etcd", "kube-controller-manager")


@dataclass(frozen=True)
class Side:
    """One of the two compared operators."""

    name: str
    resource: str
    """The resource of its jobs in the API server's audit log."""
    definitions: tuple[Path, ...]
    controller: Callable[[ControlPlane], AbstractContextManager[int]]
    """Runs it for a block; yields its process id."""
    create: Callable[[ControlPlane, str], None]


@contextmanager
def our_operator(plane: ControlPlane) -> Iterator[int]:
    """Runs the operator of this repository with the rights and settings of its chart; yields its process id."""
    operator_process.grant_rights(plane)
    with operator_process.OperatorProcess(plane, plane.directory / "operator", **SETTINGS) as operator:
        yield operator_cluster.pid_of(operator)


def sides() -> tuple[Side, Side]:
    """Our operator and Kubeflow Trainer."""
    ours = Side(
        "tpujob",
        "tputrainingjobs",
        (DEFINITION,),
        our_operator,
        lambda plane, name: operator_cluster.create(plane, name, suspend=True),
    )
    theirs = Side(
        f"Kubeflow Trainer {binaries.PROGRAMS['kubeflow-trainer'].version}",
        "trainjobs",
        tuple(kubeflow_trainer.custom_resources()),
        kubeflow_trainer.controller,
        lambda plane, name: kubeflow_trainer.create(plane, name, namespace=NAMESPACE),
    )
    return ours, theirs


def measure(side: Side, folder: Path, count: int, *, limit_seconds: float) -> None:
    """Prints the time and the processor time of `count` jobs that are created at once."""
    definitions = [jobset_custom_resources(), *side.definitions]
    with (
        ControlPlane(folder, custom_resources=definitions) as plane,
        JobSetController(plane) as jobset,
        side.controller(plane) as controller,
    ):
        plane.create_namespace(NAMESPACE)
        programs = {name: plane.pid_of(name) for name in PROGRAMS} | {"JobSet": jobset.pids[0], side.name: controller}
        settle(controller, limit_seconds=limit_seconds)
        before, own = {name: cpu_seconds(pid) for name, pid in programs.items()}, _own_seconds()
        began = time.monotonic()
        make = partial(side.create, plane)
        found, _ = latencies(plane, make, count, limit_seconds=limit_seconds, resource=side.resource)
        seconds = time.monotonic() - began
        used = {name: cpu_seconds(pid) - before[name] for name, pid in programs.items()}
        used["the threads that create"] = _own_seconds() - own
        say(
            f"{side.name}: p50 {quantile(found, 0.5):.1f} s, p99 {quantile(found, 0.99):.1f} s, "
            f"all {found[-1]:.1f} s; {len(found)} of {count}"
        )
        each = ", ".join(f"{name} {spent * 1000 / count:.1f}" for name, spent in used.items())
        say(f"  ms of processor time a job: {each}; together {sum(used.values()) * 1000 / count:.1f}")
        say(f"  all within {seconds:.1f} s from the first, in which {sum(used.values()) / seconds:.2f} cores were used")


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system


def main() -> None:
    """The command."""
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=500, help="how many jobs are created at once")
    arguments.add_argument("--rounds", type=int, default=2, help="how many turns each side has")
    arguments.add_argument("--limit-seconds", type=float, default=3600, help="the longest that one turn waits")
    options = arguments.parse_args()
    binaries.build_all(say, (*binaries.CONTROL_PLANE, "kubeflow-trainer"))
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.rounds):
            for side in sides():
                place = Path(folder) / f"{side.resource}-{turn}"
                measure(side, place, options.jobs, limit_seconds=options.limit_seconds)


if __name__ == "__main__":
    main()
