"""Two operators, one of which writes."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import NAMESPACE, OperatorProcess
from tests.scenes.control_plane.requests_made import jobsets_created
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane

HAND_OVER_SECONDS = 45
"""It is 15 with the start of a job; a busy machine gets more."""
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture
def pair(installed: ControlPlane, tmp_path: Path, namespace: str) -> Iterator[list[OperatorProcess]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                OperatorProcess(
                    installed,
                    tmp_path / name,
                    OPERATOR_LEADER_ELECTION="true",
                    OPERATOR_IDENTITY=name,
                    OPERATOR_WATCH_NAMESPACES=namespace,
                )
            )
            for name in ("one", "other")
        ]


def leads(operator: OperatorProcess) -> bool:
    return operator.metric("tpujob_operator_leader") == 1


def writes(operator: OperatorProcess) -> float:
    names = ("status_writes", "jobsets_created")
    return sum(operator.metric(f"tpujob_operator_{name}_total") for name in names)


def is_at_rest(operator: OperatorProcess) -> bool:
    """Whether it writes nothing while it looks at jobs."""
    before, looks = writes(operator), operator.metric("tpujob_operator_reconciles_total")
    wait_for("looks", lambda: operator.metric("tpujob_operator_reconciles_total") >= looks + 3)
    return writes(operator) == before


def test_leader_that_is_lost_is_followed_soon(
    pair: list[OperatorProcess], jobs: Jobs, record_property: Callable[[str, object], None]
) -> None:
    first, second = pair
    wait_for("one of them to lead", lambda: leads(first) != leads(second))
    leader, follower = (first, second) if leads(first) else (second, first)
    jobs.create("before")
    jobs.wait_phase("before", "Starting")
    assert writes(follower) == 0
    wait_for("the leader to be at rest", lambda: is_at_rest(leader))
    written = writes(leader)

    assert leader.process is not None
    os.kill(leader.process.pid, signal.SIGSTOP)
    try:
        stopped_at = time.monotonic()
        jobs.create("meanwhile")
        jobs.wait_phase("meanwhile", "Starting")
        record_property("hand_over_seconds", time.monotonic() - stopped_at)
        assert time.monotonic() - stopped_at < HAND_OVER_SECONDS
        jobs.run("before")
        jobs.wait_phase("before", "Running")
    finally:
        os.kill(leader.process.pid, signal.SIGCONT)

    # It wakes up with old news, and writes none of it.
    jobs.create("after")
    jobs.wait_phase("after", "Starting")
    wait_for("it to notice", lambda: leader.metric("tpujob_operator_leader") == 0)
    assert writes(leader) == written
    # On a machine that is busy for long, a lease runs out by itself.
    wait_for("one of them to lead", lambda: leads(first) != leads(second))

    (lease,) = jobs.api.items(LEASES)
    held_by = lease["spec"]["holderIdentity"]
    {"one": first, "other": second}[held_by].stop()
    # It is nobody's, or the other's already: nobody waits for it to run out.
    (lease,) = jobs.api.items(LEASES)
    assert lease["spec"].get("holderIdentity") != held_by
    wait_for("the other to lead again", lambda: leads(leader))
    jobs.create("again")
    jobs.wait_phase("again", "Starting")
    assert sorted(jobsets_created(jobs.plane.audit_log, jobs.namespace)) == ["after", "again", "before", "meanwhile"]
