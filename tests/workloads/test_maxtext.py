"""An unmodified MaxText of the package index under `tpujob run`: two processes, killed, resumed, the same losses.

`make maxtext` installs it into .cache/maxtext first. Its CPU runs take port 1234, so only one may run on a machine.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.local_run import write_job
from tests.workloads import maxtext_job
from tests.workloads.maxtext_job import PYTHON
from tools.localcluster.waiting import wait_for

ROOT = Path(__file__).parents[2]
STEPS, PERIOD = 20, 5

pytestmark = [pytest.mark.maxtext, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def base() -> str:
    if not PYTHON.exists():
        pytest.skip("MaxText is not installed; `make maxtext` does it")
    return maxtext_job.base_config()


class Folder:
    """Where one job runs, and what its process 0 wrote."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        path.mkdir()
        write_job(path / "job.yaml", name, maxtext_job.spec(steps=STEPS, period=PERIOD))

    def start(self, *options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tpujob", "run", "job.yaml", "-o", "json", *options],
            cwd=self.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str) -> dict[str, Any]:
        process = self.start(*options)
        out, err = process.communicate(timeout=400)
        assert process.returncode == 0, err[-3000:]
        summary: dict[str, Any] = json.loads(out.splitlines()[-1])
        return summary

    def losses(self) -> dict[int, str]:
        """Of the newest attempt, by step, as they were printed."""
        logs = sorted(self.path.glob(".tpujob/default/*/logs/*/process-0.log"))
        text = logs[-1].read_text() if logs else ""
        return {int(step): loss for step, loss in re.findall(r"completed step: (\d+),.*? loss: ([\d.]+),", text)}

    def log(self) -> str:
        """Of process 0 in the newest attempt."""
        return sorted(self.path.glob(".tpujob/default/*/logs/*/process-0.log"))[-1].read_text()

    def saved_steps(self) -> list[int]:
        """Steps of committed checkpoints, ascending."""
        folders = self.path.glob(".tpujob/default/*/checkpoints/*/checkpoints/*")
        return sorted(int(folder.name) for folder in folders if folder.name.isdigit())


def pids_of(folder: Path) -> list[int]:
    """MaxText's own processes below a folder, in the order of their start."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            environ = (process / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in environ and command.startswith(str(PYTHON).encode()):
            found.append(int(process.name))
    return sorted(found)


def test_a_killed_maxtext_resumes_with_the_same_losses(tmp_path: Path, base: str) -> None:
    undisturbed = Folder(tmp_path / "undisturbed", "undisturbed")
    summary = undisturbed.run()
    assert (summary["phase"], summary["step"], summary["steps"]) == ("Succeeded", STEPS, STEPS)
    expected = undisturbed.losses()
    assert sorted(expected) == list(range(STEPS))
    # Read from its metrics, which have more digits than its log.
    assert f"{summary['loss_last']:.3f}" == expected[STEPS - 1]
    assert f"{summary['loss_first']:.3f}" == expected[0]
    assert summary["tokens_per_second"] > 0
    assert summary["committed_step"] == undisturbed.saved_steps()[-1] + 1

    killed = Folder(tmp_path / "killed", "killed")
    running = killed.start()
    wait_for("a checkpoint", lambda: PERIOD in killed.saved_steps(), timeout_seconds=300)
    os.kill(pids_of(killed.path)[-1], signal.SIGKILL)
    out, err = running.communicate(timeout=120)
    assert running.returncode not in (0, 75), err[-3000:]
    assert json.loads(out.splitlines()[-1])["phase"] == "Failed"
    saved = killed.saved_steps()[-1]

    again = killed.run()
    assert (again["phase"], again["restored_from"]) == ("Succeeded", saved + 1)
    resumed = killed.losses()
    assert min(resumed) > saved >= PERIOD, "it began with the step after the checkpoint"
    assert resumed == {step: loss for step, loss in expected.items() if step in resumed}
    assert max(resumed) == STEPS - 1


def test_a_stopped_maxtext_is_not_counted_as_finished(tmp_path: Path, base: str) -> None:
    stopped = Folder(tmp_path / "stopped", "stopped")
    running = stopped.start()
    wait_for("a step", stopped.losses, timeout_seconds=300)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 75, err[-3000:]
    ended = json.loads(out.splitlines()[-1])
    assert (ended["phase"], ended["steps"]) == ("Suspended", STEPS)
    assert ended["step"] > 0


def test_a_patched_file_takes_the_place_of_maxtexts_own(tmp_path: Path, base: str) -> None:
    package = Path(base).parents[1]
    logger = package / "common" / "metric_logger.py"
    printed = logger.read_text()
    assert "completed step: " in printed
    patch = tmp_path / "code" / "patches" / "maxtext" / "common" / "metric_logger.py"
    patch.parent.mkdir(parents=True)
    patch.write_text(printed.replace("completed step: ", "completed patched step: "))
    subprocess.run(["git", "init", "-q", str(tmp_path / "code")], check=True, capture_output=True)

    patched = Folder(tmp_path / "patched", "patched")
    assert patched.run("--code", str(tmp_path / "code"))["phase"] == "Succeeded"

    log = patched.log()
    assert "patch maxtext/common/metric_logger.py in the place of" in log
    assert "completed patched step: " in log
    assert "completed step: " not in log
    assert logger.read_text() == printed
