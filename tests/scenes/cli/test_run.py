"""`tpujob run` as a person uses it: real processes, real text, and the last line of stdout."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.desk import Desk, data, desk, processes_below, summary, wait_for_a_commit
from tests.harness.processes import COMPILED_ONCE

__all__ = ["data", "desk"]
pytestmark = pytest.mark.processes

ENDLESS = 10_000_000
"""Steps: more than there is time for, on any machine."""
ASKS_FOR_NO_REPORT = """
from tpujob.local import reports
reports.INTERVAL_SECONDS = 3600
"""


def tpujob(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    environment = {**os.environ, **COMPILED_ONCE}
    command = [sys.executable, "-m", "tpujob", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    """The desk of a job for one chip that was rehearsed to its end, and what that printed."""
    desk = Desk(tmp_path_factory.mktemp("finished"), data)
    (desk.folder / "a.txt").write_text("a line of text\n" * 200)
    desk.spec["accelerator"] = "v5e-1"
    desk.spec["trainer"]["data"] = {"path": "a.txt"}
    return desk, desk.run("--json")


def test_a_job_trains_to_its_end_and_says_so_in_one_json_line(finished, monkeypatch):
    desk, done = finished
    assert done.returncode == 0, done.stderr
    result = summary(done)
    assert (result["phase"], result["step"], result["processes"]) == ("Succeeded", 6, 1)
    assert result["restored_from"] is None
    assert result["loss_last"] < result["loss_first"]
    assert result["tokens_per_second"] > 0
    assert result["checkpoint"] == str(desk.checkpoints)

    again = desk.run("--json")
    assert again.returncode == 0
    assert "complete" in again.stderr
    assert summary(again)["step"] == 6

    # Over before it was asked for a report, as a small run on a fast machine is.
    (desk.folder / "sitecustomize.py").write_text(ASKS_FOR_NO_REPORT)
    monkeypatch.setenv("PYTHONPATH", str(desk.folder))
    done = desk.run("--json", steps=8)
    longer = summary(done)
    assert (longer["phase"], longer["step"], longer["restored_from"]) == ("Succeeded", 8, 6)
    assert "resumed from step 6" in done.stderr


def test_a_rehearsal_warns_of_what_pods_will_lack(finished):
    _, done = finished
    assert 'warning: spec.trainer.data.path: "a.txt" is relative' in done.stderr
    assert [warning.partition(":")[0] for warning in summary(done)["warnings"]] == [
        "spec.checkpointDir",
        "spec.trainer.data.path",
    ]


def test_checkpoint_commands_take_the_path_that_run_prints(finished):
    desk, done = finished
    printed = re.search(r"^checkpoints  (\S+)$", done.stderr, re.MULTILINE)
    assert printed, done.stderr
    place = printed[1]
    assert not place.startswith("/")
    (desk.folder / "below").mkdir()
    for here, verb in ((desk.folder, ["ls", place]), (desk.folder / "below", ["export", f"../{place}", "exported"])):
        asked = tpujob(here, "checkpoint", *verb)
        assert asked.returncode == 0, f"{verb}: {asked.stdout}{asked.stderr}"
    assert (desk.folder / "below" / "exported" / "config.json").exists()


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, data):
    """What was seen of a job of two processes: profiled, joined by another run, interrupted, and resumed."""
    seen = SimpleNamespace(desk=Desk(tmp_path_factory.mktemp("interrupted"), data))
    desk = seen.desk
    with desk.start("--json", steps=ENDLESS, under_nohup=True) as running:
        wait_for_a_commit(desk)
        seen.taken = tpujob(desk.folder, *PROFILE, "--all", "--to", "here")
        seen.second = desk.run(steps=ENDLESS)
        running.send_signal(signal.SIGHUP)
        running.send_signal(signal.SIGINT)
        out, seen.err = running.communicate(timeout=600)
        seen.code = running.returncode
    seen.left = processes_below(desk.folder)
    seen.stopped = json.loads(out.splitlines()[-1])
    seen.late = tpujob(desk.folder, *PROFILE)
    seen.resumed = summary(desk.run("--json", steps=seen.stopped["committed_step"] + 2))
    return seen


PROFILE = ("profile", "desk", "--local", "--steps", "3")


def test_profile_of_a_run_that_goes_on(interrupted):
    taken, desk = interrupted.taken, interrupted.desk
    assert taken.returncode == 0, taken.stderr
    for process in (0, 1):
        assert f"process {process}: saved in {desk.checkpoints}/profiles" in taken.stdout
        [fetched] = (desk.folder / "here").rglob(f"process-{process}.xplane.pb")
        saved = desk.checkpoints / "profiles" / fetched.relative_to(desk.folder / "here")
        assert fetched.read_bytes() == saved.read_bytes()
    assert len(list((desk.folder / "here" / "memory").rglob("*.pb.gz"))) == 2
    assert (interrupted.late.returncode, interrupted.late.stdout) == (1, "")
    assert "process 0: no training process answers" in interrupted.late.stderr


def test_a_second_run_in_the_directory_is_refused_by_name(interrupted):
    second = interrupted.second
    assert second.returncode == 78, second.stdout
    assert "spec.checkpointDir: another run is writing" in second.stderr
    assert str(interrupted.desk.checkpoints) in second.stderr
    assert second.stdout == "", "refused before any process starts"


def test_an_interrupt_saves_and_a_hangup_is_ignored_under_nohup(interrupted):
    stopped = interrupted.stopped
    assert interrupted.code == 75, interrupted.err
    assert stopped["phase"] == "Suspended"
    assert f"saved at step {stopped['committed_step']}" in interrupted.err
    assert interrupted.left == []


def test_an_interrupted_run_goes_on_where_it_stopped(interrupted):
    step, resumed = interrupted.stopped["committed_step"], interrupted.resumed
    assert (resumed["phase"], resumed["processes"]) == ("Succeeded", 2)
    assert (resumed["restored_from"], resumed["step"]) == (step, step + 2)


@pytest.mark.parametrize(
    ("changes", "code", "fragments"),
    [
        pytest.param({"acelerator": "v4-8"}, 78, ["spec.acelerator", "did you mean accelerator"], id="unknown field"),
        pytest.param({"accelerator": "v4-12"}, 78, ["spec.accelerator", "v4-12", "v4-16"], id="impossible topology"),
        pytest.param(
            {"accelerator": "v5e-256", "batchSize": 256},
            78,
            ["spec.accelerator", "64", "--max-processes"],
            id="too large to rehearse",
        ),
        pytest.param(
            {"data": {"path": "nowhere/*.parquet"}},
            77,
            ["spec.trainer.data.path", "nowhere/*.parquet"],
            id="missing data path",
        ),
        pytest.param(
            {"checkpointDir": "/dev/null/here"},
            78,
            ["spec.checkpointDir", "/dev/null/here"],
            id="unreadable checkpoint directory",
        ),
        pytest.param(
            {"accelerator": "cpu:2x1", "batchSize": 7},
            78,
            ["spec.trainer.batchSize", "7"],
            id="batch that does not divide",
        ),
    ],
)
def test_bad_input_is_named_with_its_exit_code(desk, changes, code, fragments):
    done = desk.run("-o", "json", **{"accelerator": "cpu:1x1", **changes})
    output = done.stdout + done.stderr
    assert done.returncode == code, output
    for fragment in fragments:
        assert fragment in output
    assert "Traceback" not in output
    result = json.loads(done.stdout)
    assert (result["phase"], result["exit_code"]) == ("Invalid", code)
    assert fragments[0] in result["cause"]


def test_a_bucket_that_nobody_answers_for_is_on_the_screen_at_once(desk, monkeypatch):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        monkeypatch.setenv("TENSORSTORE_GCS_HTTP_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        running = desk.start(accelerator="cpu:1x1", checkpointDir="gs://bucket/run")
        lines = []
        for line in running.stdout:
            lines.append(line)
            if line.startswith("checkpoints: "):
                break
        # At once: long before it is given up, after 15 s.
        assert re.search(r"gs://bucket/run cannot be reached for \d s: 127.0.0.1", lines[-1]), lines
        said = time.monotonic()
        out, _ = running.communicate(timeout=600)
    assert running.returncode == 1
    assert "spec.checkpointDir: gs://bucket/run cannot be reached at present" in out
    assert "Traceback" not in out
    assert time.monotonic() - said < 120, "15 s of trying, and the end of the process"


def test_a_programs_own_output_is_shown(desk):
    program = ["python3", "-c", "print('loss 1.25')"]
    done = desk.run(trainer=None, command=program)
    assert done.returncode == 0, done.stderr
    assert "loss 1.25" in done.stdout
    assert "finished" in done.stdout
    assert "None" not in done.stdout


WHO = (
    "import os, sys; e = os.environ; print('process', e['JAX_PROCESS_ID'], 'of', e['JAX_NUM_PROCESSES'], sys.argv[1:])"
)


def test_a_program_runs_without_a_job_file(tmp_path):
    (tmp_path / "My_train.py").write_text(WHO)
    done = tpujob(tmp_path, "run", "My_train.py", "--accelerator", "cpu:2x2", "--", "--steps", "3")
    assert done.returncode == 0, done.stderr
    assert "cpu:2x2: 2 processes on this machine" in done.stdout
    assert "process 0 of 2 ['--steps', '3']" in done.stdout
    assert "tpujob launch:" not in done.stdout, "the wiring is for --verbose"
    assert (tmp_path / ".tpujob" / "default" / "my-train" / "logs").is_dir()
    wired = tpujob(tmp_path, "run", "My_train.py", "-v", "--accelerator=cpu:2x1")
    assert "tpujob launch: process 0 of 2" in wired.stdout


def test_a_program_that_is_not_there_and_options_that_are_not_its_own_are_named(tmp_path):
    assert "train.py: no such file" in tpujob(tmp_path, "run", "train.py").stderr
    (tmp_path / "job.yaml").write_text("{}")
    refused = tpujob(tmp_path, "run", "job.yaml", "--accelerator", "cpu:1x1")
    assert (refused.returncode, "goes with a program" in refused.stderr) == (78, True)


def test_a_run_whose_folder_is_deleted_meanwhile_ends_without_a_traceback(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    (here / "train.py").write_text(f"import shutil; shutil.rmtree({str(here)!r})")
    done = tpujob(here, "run", "train.py", "--directory", str(tmp_path / "runs"))
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_an_interrupt_at_the_start_leaves_no_traceback(tmp_path):
    for delay in (0.05, 0.2, 0.4, 0.8):
        with subprocess.Popen(
            [sys.executable, "-m", "tpujob", "run", "none.yaml"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        ) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        # Before its first line runs, Python itself speaks: of `site`, or of runpy.
        assert "tpujob/" not in said, said


def test_a_directory_that_cannot_be_made_is_named(desk):
    (desk.folder / "file").write_text("")
    done = desk.run("--directory", "file/below")
    assert done.returncode == 78
    assert "--directory" in done.stderr
    assert "Traceback" not in done.stderr
