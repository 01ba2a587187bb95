"""The operator is killed after each of its API calls in turn: there is exactly one JobSet all the same.

Each process is the victim for one job, and the repair crew for the job before: the proxy counts the calls that concern
the victim's job, and when the n-th has been answered by the API server, the process is killed before it hears the
answer. So the cluster is left in every state that lies between two calls.
"""

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.harness.jobs import Jobs
from tests.harness.operator_process import OperatorProcess
from tests.scenes.control_plane.proxy import Passing, Proxy
from tests.scenes.control_plane.requests_made import jobsets_created
from tools.localcluster.control_plane import ControlPlane
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.control_plane

MOST_CALLS = 40
"""More than a job needs until its pods are awaited; not reached unless something loops."""


class Killer:
    """Kills the operator at the n-th answer about a job."""

    def __init__(self, operator: OperatorProcess) -> None:
        self._operator = operator
        self._lock = threading.Lock()
        self.calls: list[str] = []
        self.struck = False
        self._name, self._number = "", 0

    def aim(self, name: str, number: int) -> None:
        """From now on, the answer to the `number`-th call about this job kills."""
        with self._lock:
            self._name, self._number = name, number
            self.calls = []
            self.struck = False

    def disarm(self) -> bool:
        """Kills no more; whether it has struck."""
        with self._lock:
            self._name = ""
            return self.struck

    @property
    def has_seen_resume(self) -> bool:
        """Whether the last call that brings up a job's pods was answered."""
        with self._lock:
            return self._has_seen_resume()

    def _has_seen_resume(self) -> bool:
        return any(call.startswith("PATCH") and "/jobsets/" in call for call in self.calls)

    def answered(self, passing: Passing) -> None:
        """Counts the calls until the pods are brought up; called by the proxy."""
        with self._lock:
            if not self._name or self.struck or self._has_seen_resume() or not passing.concerns(self._name):
                return
            self.calls.append(f"{passing.method} {passing.path}")
            if len(self.calls) == self._number:
                self.struck = True
                assert self._operator.process is not None
                os.kill(self._operator.process.pid, signal.SIGKILL)


def test_killed_between_any_two_calls(installed: ControlPlane, jobs: Jobs, operator_directory: Path) -> None:
    with Proxy(installed).serving() as proxy:
        operator = OperatorProcess(
            installed, operator_directory, url=proxy.url, OPERATOR_WATCH_NAMESPACES=jobs.namespace
        )
        killer = Killer(operator)
        proxy.answered = killer.answered
        names: list[str] = []
        try:
            for number in range(1, MOST_CALLS):
                name = f"victim-{number:02}"
                names.append(name)
                killer.aim(name, number)
                jobs.create(name)
                operator.start()
                wait_for(
                    f"the kill at call {number}, or the job's pods",
                    lambda: killer.struck or killer.has_seen_resume,
                    explain=operator.log,
                )
                if not killer.disarm():
                    break
                operator.wait_until_gone()
            for name in names:
                jobs.run(name)
                jobs.wait_phase(name, "Running")
        finally:
            operator.stop()
    assert sorted(jobsets_created(installed.audit_log, jobs.namespace)) == names
    # It was a systematic test: every write before the pods, and the look before a step.
    assert len(names) >= 6
    created = [call.rpartition("/")[2].partition("?")[0] for call in killer.calls if call.startswith("POST ")]
    # The last Event may come after the call that ends the count.
    assert [kind for kind in created if kind != "events"] == ["networkpolicies", "secrets", "jobsets"]
    # Status: the JobSet recorded, and the job starting; the JobSet: resumed.
    assert sum(call.startswith("PATCH ") for call in killer.calls) == 2
