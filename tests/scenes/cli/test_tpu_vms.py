"""`tpujob run` on two hosts of a slice and on four independent machines, each in a network namespace of its own.

A host's trainer is killed, a whole machine goes and comes back, connections are lost, one person stops the run; what
runs on each machine is looked at in the end. The chips are CPU devices.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.cli.desk import TRAINER
from tests.cli.test_hosts import EXTRACTION, LIMIT_SECONDS, data
from tests.harness import tpu_vms
from tests.harness.processes import COMPILED_ONCE
from tests.harness.tpu_vms import TpuVms
from tools.localcluster.waiting import wait_for
from tpujob.commands.from_folder import folder_to_parquet

__all__ = ["data"]
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not tpu_vms.can_be_made(), reason="network namespaces need root; test_hosts.py plays fewer"),
]
HOSTS, WORKERS = 2, 4
ENVIRONMENT = {**os.environ, **COMPILED_ONCE, "TPUJOB_SECRET": "of all machines"}


class Slice:
    """A job on machines that share a checkpoint directory."""

    def __init__(self, machines: TpuVms, folder: Path, count: int, spec: dict[str, Any]) -> None:
        self.machines, self.count = machines, count
        self.checkpoints = folder / "checkpoints"
        self.folders = [folder / str(number) for number in range(count)]
        job = {"apiVersion": "tpujob.dev/v1beta1", "kind": "TpuTrainingJob", "metadata": {"name": "slice"}}
        for each in self.folders:
            each.mkdir()
            YAML().dump({**job, "spec": {**spec, "checkpointDir": str(self.checkpoints)}}, each / "job.yaml")

    def start(self, number: int, *options: str) -> subprocess.Popen[str]:
        words = ("run", "job.yaml", *options)
        return self.machines.tpujob(number, self.folders[number], *words, environ=ENVIRONMENT)

    def ask(self, number: int, *words: str) -> str:
        """What `tpujob` prints on a machine."""
        asked = self.machines.tpujob(number, self.folders[number], *words, environ=ENVIRONMENT)
        asked.wait(timeout=LIMIT_SECONDS)
        return self.output(number)

    def output(self, number: int) -> str:
        return (self.folders[number] / "output").read_text()

    def log(self, number: int) -> str:
        """Of the run in the background."""
        return (self.folders[number] / ".tpujob/default/slice/run.log").read_text()

    def wait_for_log(self, text: str, *numbers: int, times: int = 1) -> None:
        wait_for(
            f"{text!r} on {numbers}",
            lambda: all(self.log(number).count(text) >= times for number in numbers),
            timeout_seconds=LIMIT_SECONDS,
        )


@pytest.fixture
def hosts(tmp_path: Path, data: Path) -> Iterator[Slice]:
    machines = TpuVms(HOSTS, "v4-16")
    trainer = {**TRAINER, "steps": 100_000, "checkpoint": {"everySteps": 5}, "data": {"path": str(data)}}
    del trainer["sample"]
    yield Slice(machines, tmp_path, HOSTS, {"accelerator": f"cpu:{HOSTS}x1", "trainer": trainer})
    machines.close()


def test_slice_survives_a_kill_a_lost_machine_and_lost_connections(hosts: Slice) -> None:
    everywhere = range(HOSTS)
    lines = [hosts.start(number, "--hosts", "auto", "--restarts", "5", "--detach") for number in everywhere]
    assert [line.wait(timeout=LIMIT_SECONDS) for line in lines] == [0] * HOSTS
    for line in lines:
        # The connection is lost: what ssh started is told so, if anything of it is left.
        with pytest.raises(ProcessLookupError):
            os.killpg(line.pid, signal.SIGHUP)
    hosts.wait_for_log("checkpoint 5", 0)
    assert f"process 1 of {HOSTS} on this machine; process 0 is at {hosts.machines.addresses[0]}:8476" in hosts.log(1)

    os.kill(hosts.machines.trainer(1), signal.SIGKILL)
    hosts.wait_for_log("resumed from step", *everywhere)

    hosts.machines.pull_the_plug(1)
    hosts.wait_for_log(" of 5 in ", 0, times=2)
    assert hosts.start(1, "--hosts", "auto", "--restarts", "5", "--detach").wait(timeout=LIMIT_SECONDS) == 0
    hosts.wait_for_log("resumed from step", 0, times=2)
    hosts.wait_for_log("resumed from step", 1)

    (found,) = json.loads(hosts.ask(1, "get", "--local", "-o", "json"))
    assert found["name"] == "default/slice"
    assert "slice: asked to save and stop" in hosts.ask(1, "stop", "--local", "slice")
    hosts.machines.wait_until_idle(*everywhere)
    (saved,) = {
        line.split(";")[0] for number in everywhere for line in hosts.log(number).splitlines() if "saved" in line
    }
    step = int(saved.removeprefix("stopped: saved at step "))

    options = ("--hosts", "auto", "--set", f"spec.trainer.steps={step + 3}")
    lines = [hosts.start(number, *options) for number in everywhere]
    assert [line.wait(timeout=LIMIT_SECONDS) for line in lines] == [0] * HOSTS
    for number in everywhere:
        assert f"resumed from step {step}" in hosts.output(number)
        assert f"finished at step {step + 3}" in hosts.output(number)
    hosts.machines.wait_until_idle(*everywhere)


@pytest.fixture
def many_rows(tmp_path: Path) -> Path:
    """More units than machines, so that there are some left whenever one goes."""
    folder_to_parquet(Path(os.__file__).parent / "asyncio", tmp_path / "text", include=("*.py",))
    return tmp_path / "text" / "*.parquet"


@pytest.fixture
def workers(tmp_path: Path, many_rows: Path) -> Iterator[Slice]:
    machines = TpuVms(WORKERS, "v4-8")
    trainer = {**EXTRACTION, "data": {"path": str(many_rows)}}
    yield Slice(machines, tmp_path, WORKERS, {"accelerator": "cpu:1x1", "workers": WORKERS, "trainer": trainer})
    machines.close()


def test_independent_machines_finish_without_those_that_are_gone(workers: Slice) -> None:
    """One in the background without its connection; one machine is gone, and one person presses Ctrl-C."""
    everywhere = range(WORKERS)
    lines = [
        workers.start(number, "--host", str(number), *(("--detach",) if number < 1 else ())) for number in everywhere
    ]
    assert lines[0].wait(timeout=LIMIT_SECONDS) == 0
    wait_for("compiling on 3", lambda: "compiling" in workers.output(3), timeout_seconds=LIMIT_SECONDS)
    os.killpg(lines[3].pid, signal.SIGINT)
    workers.machines.pull_the_plug(2)
    assert lines[3].wait(timeout=LIMIT_SECONDS) == 75, workers.output(3)
    workers.machines.wait_until_idle(2, 3)
    assert lines[1].wait(timeout=LIMIT_SECONDS) == 0, workers.output(1)
    workers.machines.wait_until_idle(*everywhere)
    found = json.loads(workers.ask(0, "extract", "status", str(workers.checkpoints), "-o", "json"))
    assert found["units"] == found["done"] > WORKERS
    assert "finished" in workers.log(0)
    # One that comes back finds nothing left to do.
    assert workers.start(2, "--host", "2").wait(timeout=LIMIT_SECONDS) == 0, workers.output(2)
    workers.machines.wait_until_idle(2)
