"""`tpujob run` on the hosts of one slice, and on independent machines: the same line on each, no cluster.

Each host is a `tpujob run` of its own, with an address and a metadata server of its own on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.cli.desk import TRAINER, processes_below
from tests.fakes import Exchange, HttpServer
from tests.harness import tpu_vms
from tests.harness.processes import COMPILED_ONCE
from tests.operator.manifests import manifest
from tools.localcluster.waiting import wait_for
from tpujob.commands.from_folder import folder_to_parquet
from tpujob_contract import environment as names

pytestmark = pytest.mark.processes
with_fewer = pytest.mark.skipif(
    tpu_vms.can_be_made(), reason="test_tpu_vms.py plays it with more machines, in network namespaces"
)

LIMIT_SECONDS = 600
ADDRESSES = tuple(f"127.0.83.{number}" for number in range(1, 3))
"""Of the hosts; the first one's coordinator port collides with none of 127.0.0.1."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    folder_to_parquet(Path(os.__file__).parent / "json", folder / "text", include=("*.py",))
    return folder / "text" / "*.parquet"


class Machines:
    """Folders in which the same job is run, one for each machine."""

    def __init__(self, folder: Path, count: int, spec: dict[str, Any]) -> None:
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self._servers = [self._metadata(number) for number in range(count)]
        self._spec = {**spec, "checkpointDir": str(self.checkpoints)}
        for number in range(count):
            (folder / str(number)).mkdir()

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def command(self, number: int, *options: str, **trainer: Any) -> dict[str, Any]:
        """Arguments of Popen for one machine."""
        spec = {**self._spec, "trainer": {**self._spec["trainer"], **trainer}}
        YAML().dump(manifest("slice", **spec), self.folder / str(number) / "job.yaml")
        environ = {
            **os.environ,
            "GCE_METADATA_HOST": self._servers[number].host,
            **COMPILED_ONCE,
            names.SECRET: "of all machines",
        }
        return {
            "args": [sys.executable, "-m", "tpujob", "run", "job.yaml", *options],
            "cwd": self.folder / str(number),
            "env": environ,
        }

    @contextlib.contextmanager
    def start(self, *options: str, **trainer: Any) -> Iterator[list[subprocess.Popen[str]]]:
        """The same line on all machines; ended after the block, whatever happens in it."""
        runs = []
        try:
            for number in range(len(self._servers)):
                with (self.folder / str(number) / "output").open("w") as output:
                    runs.append(
                        subprocess.Popen(
                            **self.command(number, *options, **trainer), stdout=output, stderr=output, text=True
                        )
                    )
            yield runs
        finally:
            for run in runs:
                run.kill()
                run.wait()

    def wait_for(self, number: int, text: str, runs: list[subprocess.Popen[str]]) -> None:
        """Waits until a machine has printed this, or has ended."""
        wait_for(
            text,
            lambda: text in self.output(number) or runs[number].poll() is not None,
            timeout_seconds=LIMIT_SECONDS,
        )
        assert text in self.output(number)

    def output(self, number: int) -> str:
        return (self.folder / str(number) / "output").read_text()

    def trainer(self, number: int) -> int:
        """The pid of the trainer on one machine."""
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                command = (environ.parent / "cmdline").read_bytes().split(b"\0")
                mine = f"{names.TERMINATION_LOG}={self.folder / str(number)}/".encode() in environ.read_bytes()
                if mine and b"tpujob_trainer" in command and b"tpujob_contract.launch" not in command:
                    return int(environ.parent.name)
        raise AssertionError(f"no trainer on machine {number}: {self.output(number)}")

    def _metadata(self, number: int) -> HttpServer:
        attributes = {
            "accelerator-type": "v4-16",
            "agent-worker-number": str(number),
            "worker-network-endpoints": ",".join(f"host:8470:{address}" for address in ADDRESSES),
        }

        def answer(request: Exchange) -> None:
            value = attributes.get(request.path.rpartition("/")[2])
            request.reply(404 if value is None else 200, (value or "").encode())

        return HttpServer(answer)


@pytest.fixture
def slice_hosts(tmp_path: Path, data: Path) -> Iterator[Machines]:
    trainer = {**TRAINER, "checkpoint": {"everySteps": 5}, "data": {"path": str(data)}}
    del trainer["sample"]
    machines = Machines(tmp_path, 2, {"accelerator": "cpu:2x1", "trainer": trainer})
    yield machines
    machines.close()
    assert processes_below(tmp_path) == []


@with_fewer
def test_hosts_lose_one_come_back_stop_together_and_finish(slice_hosts: Machines) -> None:
    hosts = slice_hosts
    with hosts.start("--hosts", "auto", "--restarts", "3", steps=100_000) as runs:
        hosts.wait_for(0, "checkpoint 5", runs)
        os.kill(hosts.trainer(1), signal.SIGKILL)
        for number in range(2):
            hosts.wait_for(number, "restart 1 of 3", runs)
            hosts.wait_for(number, "resumed from step", runs)
        assert "process 1 of 2 on this machine; process 0 is at 127.0.83.1:8476" in hosts.output(1)
        # One person's Ctrl-C on one machine.
        runs[1].send_signal(signal.SIGINT)
        assert [run.wait(timeout=LIMIT_SECONDS) for run in runs] == [75] * 2
    saved = [line for line in hosts.output(0).splitlines() if line.startswith("stopped: saved at step")]
    step = int(saved[0].split(";")[0].rpartition(" ")[2])
    assert all(f"stopped: saved at step {step}" in hosts.output(number) for number in range(2))
    with hosts.start("--hosts", "auto", steps=step + 3) as runs:
        assert [run.wait(timeout=LIMIT_SECONDS) for run in runs] == [0] * 2
    assert f"resumed from step {step}" in hosts.output(1)
    assert f"finished at step {step + 3}" in hosts.output(1)


def test_hosts_of_one_slice_need_a_directory_of_all(slice_hosts: Machines) -> None:
    options = ("--hosts", "auto", "--set", "spec.checkpointDir=null")
    done = subprocess.run(**slice_hosts.command(1, *options), capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 78
    assert "spec.checkpointDir: is missing; 2 machines save one checkpoint together" in done.stderr


EXTRACTION: dict[str, Any] = {
    "task": "extract",
    "model": {"layers": 2, "embedDim": 16, "heads": 2},
    "sequenceLength": 32,
    "batchSize": 4,
    "extract": {"layers": ["0-1"], "keep": ["residual"], "unitRows": 1, "leaseSeconds": 10},
}
"""A trainer block without data, in which each row is a unit."""


@pytest.fixture
def workers(tmp_path: Path, data: Path) -> Iterator[Machines]:
    trainer = {**EXTRACTION, "data": {"path": str(data)}}
    machines = Machines(tmp_path, 3, {"accelerator": "cpu:1x1", "workers": 3, "trainer": trainer})
    yield machines
    machines.close()
    assert processes_below(tmp_path) == []


@with_fewer
def test_independent_machines_share_the_units_of_an_extraction(workers: Machines) -> None:
    runs = []
    try:
        for number in (0, 1):
            with (workers.folder / str(number) / "output").open("w") as output:
                command = workers.command(number, "--host", str(number))
                runs.append(subprocess.Popen(**command, stdout=output, stderr=output))
        # One machine is gone, with all that runs on it; its units are taken over.
        wait_for("units", lambda: any(workers.checkpoints.glob("claims/*")), timeout_seconds=LIMIT_SECONDS)
        runs[0].kill()
        runs[0].wait()
        assert runs[1].wait(timeout=LIMIT_SECONDS) == 0, workers.output(1)
    finally:
        for run in runs:
            run.kill()
            run.wait()
    # A machine that comes later finds nothing left to do.
    done = subprocess.run(**workers.command(2, "--host", "2"), capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    status = subprocess.run(
        [sys.executable, "-m", "tpujob", "extract", "status", str(workers.checkpoints), "-o", "json"],
        capture_output=True, text=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    found = json.loads(status.stdout)
    assert found["units"] == found["done"] > 1
