"""`tpujob run` of a job with `inPlaceRestarts`: a trainer that is killed costs its own start, and no launcher."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.harness.processes import COMPILED_ONCE
from tests.operator.manifests import manifest
from tools.localcluster.waiting import wait_for
from tpujob_launcher.supervise.processes import command_line, descendants

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

TRAINER = {
    "model": {"layers": 1, "embedDim": 32, "heads": 2},
    "data": {"path": "text.txt", "tokenizer": "bytes"},
    "sequenceLength": 32,
    "batchSize": 8,
    "steps": 10_000_000,
    "checkpoint": {"everySteps": 20},
}
JOB = manifest("desk", accelerator="cpu:2x1", inPlaceRestarts=2, trainer=TRAINER)


def trainer_of(run: int, host: int) -> int:
    """The pid of the trainer of a host below `tpujob run`."""
    for pid in descendants(run):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        command = command_line(pid)
        is_trainer = command.endswith("-m tpujob_trainer") and "tpujob_contract.launch" not in command
        if is_trainer and f"TPUJOB_HOST={host}".encode() in variables:
            return pid
    pytest.fail(f"no trainer of host {host}")


def test_a_killed_trainer_goes_on_in_the_same_launchers(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("tick tock tick\n" * 2000)
    YAML().dump(JOB, tmp_path / "job.yaml")
    root = tmp_path / ".tpujob" / "default" / "desk"
    environ = {**os.environ, **COMPILED_ONCE}
    command = [sys.executable, "-m", "tpujob", "run", "job.yaml", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stderr is not None
        wait_for("a checkpoint", (root / "checkpoints" / "latest.json").exists, timeout_seconds=300)
        launchers = {pid for pid in descendants(run.pid) if "tpujob_contract.launch" in command_line(pid)}
        os.kill(trainer_of(run.pid, 1), signal.SIGKILL)
        lines = []
        for line in run.stderr:
            lines.append(line)
            if line.startswith("resumed from step"):
                break
        said = lines[-1]
        assert any(line.startswith("attempt 1 in the same containers: process 1 ended") for line in lines), lines
        step = int(re.search(r"\d+", said)[0])  # type: ignore[index]
        assert launchers <= set(descendants(run.pid))
        run.send_signal(signal.SIGINT)
        assert run.stdout is not None
        result = json.loads(run.stdout.read().splitlines()[-1])
    assert run.returncode == 75, result
    assert result["restored_from"] == step > 0
    assert result["committed_step"] >= step
    for host in (0, 1):
        (log,) = root.glob(f"logs/*/process-{host}.log")
        assert "attempt 1 in the same containers: process 1 ended with exit code 137" in log.read_text()
    attempts = [json.loads(file.read_text()) for file in sorted((root / "checkpoints" / "attempts").glob("*.json"))]
    assert [each["in_place_restarts"] for each in attempts] == [None, 1]
    assert attempts[1]["in_place_cause"].startswith("process 1 ended with exit code 137")
