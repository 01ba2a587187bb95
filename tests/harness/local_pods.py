"""A job whose pods are real training processes of `tpujob run`, beside an operator on a real API server.

The kubelet's part is played: each attempt of the JobSet is one `tpujob run`, whose processes stand for the pods. They
are scraped with the labels that the chart's PodMonitor gives to pods.
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.harness.jobs import Jobs
from tests.harness.processes import COMPILED_ONCE
from tests.scenes.control_plane.addresses import pod_address
from tests.scenes.control_plane.reporting import reporting
from tools.localcluster import pods
from tools.localcluster.api import Object
from tools.localcluster.plain_http import answers, opened
from tools.localcluster.processes import Process
from tools.localcluster.waiting import wait_for
from tpujob_contract import environment as names
from tpujob_contract.reports.report import PATH

POD_ADDRESS = pod_address(1)
"""Of the pod of process 0."""
START_SECONDS = 400
KILLED, PEER_DIED = 137, 1
"""Exit codes of the pods of a job of which one is killed."""

type Target = tuple[str, dict[str, str]]


class LocalPods:
    """The processes of one job, attempt after attempt."""

    def __init__(
        self,
        jobs: Jobs,
        name: str,
        directory: Path,
        spec: Mapping[str, Any],
        *,
        pods: int = 2,
        address: str | None = POD_ADDRESS,
    ) -> None:
        """Describes the job.

        Args:
            jobs: Where its resource is.
            name: Of the job.
            directory: For its file, its logs and its checkpoints.
            spec: As in its file.
            pods: How many it has.
            address: Of the first of them; None where the operator shall not read its report.
        """
        self._count, self._address = pods, address
        self.jobs, self.name, self._directory, self._spec = jobs, name, directory, spec
        self.pods: list[Object] = []
        self._processes: dict[int, dict[str, str]] = {}
        self._run: Process | None = None

    @property
    def checkpoints(self) -> Path:
        """Where the processes keep them."""
        return self._directory / self.jobs.namespace / self.name / "checkpoints"

    @property
    def targets(self) -> list[Target]:
        """Where the processes serve /metrics, with their labels."""
        return [
            (
                address(self._processes[host]),
                {
                    "namespace": self.jobs.namespace,
                    "pod": pod["metadata"]["name"],
                    "tpujob": self.name,
                    "slice": "0",
                    "host": str(host),
                },
            )
            for host, pod in enumerate(self.pods)
        ]

    def create(self) -> None:
        """Creates the resource."""
        self.jobs.create(self.name, image=None, command=None, **self._spec)

    def start(self) -> None:
        """Starts processes for the pods of the next attempt; returns when all serve and their pods are ready."""
        self.pods = self.jobs.wait_pods(self.name, self._count, other_than=self.pods)
        self._directory.mkdir(parents=True, exist_ok=True)
        file = self._directory / "job.yaml"
        metadata = {"name": self.name, "namespace": self.jobs.namespace}
        manifest = {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob", "metadata": metadata}
        file.write_text(json.dumps({**manifest, "spec": self._spec}))
        command = [sys.executable, "-m", "tpujob", "run", str(file), f"--directory={self._directory}"]
        variables = {**os.environ, **COMPILED_ONCE}
        self._run = Process("tpujob run", command, self._directory / "run.log", environment=variables)
        self._run.wait_until_ready("the processes to serve", self._all_serve, timeout_seconds=START_SECONDS)
        for pod in self.pods:
            pods.set_running(self.jobs.api, pod, pod_ip=self._address if pod is self.pods[0] else None)

    def crash(self, host: int) -> None:
        """Kills a process without warning, and ends the pods as the kubelet would."""
        os.kill(int(self._processes[host]["pid"]), signal.SIGKILL)
        assert self._run is not None
        run = self._run
        wait_for("the run to end", lambda: run.has_ended, explain=run.last_log_lines)
        self.stop()
        self.jobs.end_pod(self.pods[host], exit_code=KILLED)
        for pod in self.pods:
            if pod is not self.pods[host]:
                self.jobs.end_pod(pod, exit_code=PEER_DIED)

    def wait(self, what: str, holds: Callable[[dict[str, Any]], Any], *, seconds: float = START_SECONDS) -> None:
        """Returns when something holds of the report of process 0."""
        assert self._run is not None
        explain = self._run.last_log_lines
        wait_for(what, lambda: holds(self.report()) or None, timeout_seconds=seconds, explain=explain)

    def report(self) -> dict[str, Any]:
        """What process 0 says of itself; empty while it does not answer."""
        try:
            with opened(f"http://{address(self._processes[0])}{PATH}", timeout_seconds=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, KeyError, ValueError):
            return {}

    def stop(self) -> None:
        """Ends the processes that are left."""
        self._processes = {}
        if self._run is not None:
            self._run.stop()
            self._run = None

    def reporting(self) -> AbstractContextManager[None]:
        """Answers the operator at the address of the pod of process 0 with what that process says."""
        return reporting(self.report, address=POD_ADDRESS)

    def _all_serve(self) -> bool:
        found = {_index(each): each for each in trainers(self.jobs.namespace, self.name)}
        if len(found) < len(self.pods):
            return False
        self._processes = found
        return all(answers(f"http://{address(each)}{PATH}") for each in found.values())


def _index(process: Mapping[str, str]) -> int:
    return int(process.get(names.HOST) or process[names.WORKER])


def address(process: Mapping[str, str]) -> str:
    """Where a process of `tpujob run` serves /metrics."""
    return f"127.0.0.1:{process[names.REPORT_PORT]}"


def trainers(namespace: str, name: str) -> Iterator[dict[str, str]]:
    """The environment of each training process of a job on this machine, with its `pid`."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            pairs = (entry.partition("=") for entry in (folder / "environ").read_text(errors="replace").split("\0"))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        found = {key: value for key, _, value in pairs}
        is_of_job = (found.get(names.NAMESPACE), found.get(names.NAME)) == (namespace, name)
        # The launcher has the same variables, and the trainer's command behind its own.
        if is_of_job and command[1:3] == [b"-m", b"tpujob_trainer"]:
            yield {**found, "pid": folder.name}
