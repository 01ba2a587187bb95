"""`tpujob run --detach`, and the verbs that find such a run: get, logs and stop with --local."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.desk import Desk, data, desk, processes_below
from tools.localcluster.waiting import wait_for
from tpujob.local import runs

__all__ = ["data", "desk"]
pytestmark = pytest.mark.processes
ENDLESS = 10_000_000


def tpujob(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tpujob", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", ["train-jax", "train_jax", "train_jax.py"])
def test_run_of_a_program_is_found_by_the_name_of_its_file(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "train-jax" / "logs" / "1"
    folder.mkdir(parents=True)
    runs.keep(folder, [], "")
    assert runs.newest(tmp_path / name).directory == folder


def test_run_in_the_background_outlives_its_terminal_and_is_found_and_stopped(desk: Desk) -> None:
    started = desk.start("--detach", steps=ENDLESS, accelerator="cpu:1x1")
    # The terminal is gone as soon as the line has ended: with it its process group and its session.
    out, err = started.communicate(timeout=600)
    assert started.returncode == 0, err
    root = desk.folder / ".tpujob" / "default" / "desk"
    run = runs.newest(root)
    try:
        assert f"desk: runs in the background, pid {run.pid}" in out
        assert "tpujob stop --local desk" in out
        assert os.getsid(run.pid) != os.getsid(0)
        wait_for("a checkpoint", lambda: (desk.checkpoints / "latest.json").is_file(), timeout_seconds=600)
        found = json.loads(tpujob(desk.folder, "get", "--local", "-o", "json").stdout)
        assert [(each["name"], each["state"]) for each in found] == [("default/desk", f"running, pid {run.pid}")]
        assert found[0]["phase"] in ("training", "saving")
        assert "of 10000000" in tpujob(desk.folder, "logs", "--local", "desk", "--tail", "5").stdout
        assert tpujob(desk.folder, "logs", "--local", "desk", "--host", "3").returncode == 77
        printed = (root / "run.log").read_text()
        second = tpujob(desk.folder, "run", "job.yaml", "--detach")
        assert (second.returncode, second.stderr.split(";")[0]) == (78, f"--detach: desk is running, pid {run.pid}")
        assert (root / "run.log").read_text().startswith(printed)
    finally:
        stopped = tpujob(desk.folder, "stop", "--local", "desk")
    assert stopped.stdout.splitlines()[0] == "desk: asked to save and stop"
    assert processes_below(desk.folder) == []
    assert "stopped: saved at step" in (root / "run.log").read_text()
    assert tpujob(desk.folder, "get", "--local").stdout.splitlines()[1].split()[:2] == ["default/desk", "ended"]
    again = tpujob(desk.folder, "stop", "--local", "desk")
    assert (again.returncode, again.stderr) == (1, f"desk: has ended; its logs are in {_relative(run, desk)}\n")


def _relative(run: runs.LocalRun, desk: Desk) -> Path:
    return run.directory.relative_to(desk.folder)


def test_refusal_in_the_background_is_that_of_the_line_itself(desk: Desk) -> None:
    refused = desk.run("--detach", data={"path": "nowhere/*.parquet"})
    assert refused.returncode == 77
    assert "spec.trainer.data.path" in refused.stderr
    assert runs.newest_of_all(desk.folder / ".tpujob") == []


def test_a_later_process_with_the_number_of_an_ended_run_is_not_taken_for_it(tmp_path: Path) -> None:
    folder = tmp_path / "default" / "job" / "logs" / "20260101T000000"
    folder.mkdir(parents=True)
    runs.keep(folder, [1], "s")
    assert (folder / runs.FILE).stat().st_mode & 0o777 == 0o600
    run = runs.newest(tmp_path / "default" / "job")
    assert run.is_running
    (folder / runs.FILE).write_text(json.dumps({"pid": os.getpid(), "started": "1", "report_ports": [1]}))
    assert not runs.newest(tmp_path / "default" / "job").is_running
    # As versions before wrote it.
    (folder / runs.FILE).write_text(json.dumps({"report_ports": [1]}))
    assert not runs.newest(tmp_path / "default" / "job").is_running


def test_no_run_here_is_said(tmp_path: Path) -> None:
    assert tpujob(tmp_path, "get", "--local").stdout == "no runs of this machine in .tpujob; see --directory\n"
    merged = tpujob(tmp_path, "logs", "--local", "job", "--merged")
    assert (merged.returncode, merged.stderr) == (
        78,
        "--local: --merged, --attempts and --slice go with a job on a cluster\n",
    )
    done = tpujob(tmp_path, "stop", "--local", "job")
    assert done.returncode == 77
    assert "has not run this job in .tpujob/default/job" in done.stderr
