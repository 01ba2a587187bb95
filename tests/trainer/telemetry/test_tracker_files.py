import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.telemetry import wandb_files
from tests.trainer.telemetry.event_files import events, scalars
from tpujob_trainer.telemetry import tensorboard
from tpujob_trainer.telemetry.tensorboard import TensorBoard
from tpujob_trainer.telemetry.tracker_files import LIMIT, SAMPLES, SamplesFile
from tpujob_trainer.telemetry.wandb import run_id


def lines(folder: Path):
    return [json.loads(line) for line in (folder / SAMPLES).read_text().splitlines()]


def test_tensorboard_files_hold_numbers_and_texts(tmp_path: Path):
    tracker = TensorBoard(str(tmp_path / "board"), first_step=0)
    tracker.scalars(3, {"train/loss": 2.5, "evaluation/loss": 2.25})
    tracker.text(3, "tick", "tick tock")
    tracker.close()
    assert scalars(tmp_path / "board", "train/loss") == [(3, 2.5)]
    assert scalars(tmp_path / "board", "evaluation/loss") == [(3, 2.25)]
    texts = [
        v.tensor.string_val for e in events(tmp_path / "board") for v in e.summary.value if v.tag.startswith("sample")
    ]
    assert texts == [[b"tick tock"]]


def test_an_attempt_takes_back_later_steps_of_the_one_before(tmp_path: Path):
    for first in (0, 4):
        tracker = TensorBoard(str(tmp_path), first_step=first)
        tracker.scalars(first + 1, {"train/loss": 1.0})
        tracker.close()
    starts = sorted(event.step for event in events(tmp_path) if event.session_log.status == 1)
    assert starts == [1, 5], "TensorBoard hides what an earlier file says of these steps and later ones"


def test_event_files_are_copied_where_they_cannot_be_appended_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tensorboard, "is_local", lambda path: False)
    tracker = TensorBoard(f"{tmp_path}/bucket", first_step=0)
    tracker.scalars(1, {"train/loss": 1.5})
    tracker.close()
    assert scalars(tmp_path / "bucket", "train/loss") == [(1, 1.5)]


def test_samples_are_one_line_for_each_step(tmp_path: Path):
    first = SamplesFile(str(tmp_path))
    for step in (10, 20, 30):
        first.text(step, "a", f"a text of {step}\nin two lines")
    assert [line["step"] for line in lines(tmp_path)] == [10, 20, 30]
    assert lines(tmp_path)[0]["text"] == "a text of 10\nin two lines"
    # The next attempt went on from step 15.
    SamplesFile(str(tmp_path)).text(20, "a", "another one")
    assert [(line["step"], line["text"][:7]) for line in lines(tmp_path)] == [(10, "a text "), (20, "another")]


def test_each_prompt_has_a_line_for_each_step(tmp_path: Path):
    samples = SamplesFile(str(tmp_path))
    for step in (10, 20, 10):
        for prompt in ("a", "b"):
            samples.text(step, prompt, f"{prompt} of {step}")
    assert [(line["step"], line["text"]) for line in lines(tmp_path)] == [(10, "a of 10"), (10, "b of 10")]


def test_samples_are_not_kept_without_end(tmp_path: Path):
    samples = SamplesFile(str(tmp_path))
    samples._lines = [{"step": step} for step in range(LIMIT)]
    samples.text(LIMIT, "a", "a text")
    assert len(lines(tmp_path)) == LIMIT
    assert lines(tmp_path)[-1]["step"] == LIMIT


def test_a_run_keeps_its_id(tmp_path: Path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    assert run_id(str(tmp_path / "one")) == run_id(str(tmp_path / "one"))
    assert run_id(str(tmp_path / "one")) != run_id(str(tmp_path / "other"))


WANDB_ATTEMPT = """
import os

import tpujob_trainer.telemetry.wandb as module
from tpujob_trainer.telemetry.trackers import Background, Trackers
from tpujob_trainer.telemetry.wandb import WandB
from tpujob_launcher.supervise.processes import descendants

if IS_REMOTE:
    module.is_local = lambda url: False

def open_tracker():
    return WandB(project="tests", entity=None, name=None, directory=DIRECTORY, config={"steps": 9})

background = Background("wandb", open_tracker, lost=print)
trackers = Trackers([background])
trackers.scalars(1, {"train/loss": 2.5})
trackers.text(1, "a", "a <b> text")
assert background.close(60), "it did not end"
# Only then is the run's file whole: `finish` of wandb does not wait for it.
below = descendants(os.getpid())
assert not below, f"the service of wandb goes on: {below}"
"""


def attempt_with_wandb(folder: Path, *, is_remote: bool = False) -> None:
    """Offline, without a login, and in a process of its own: wandb starts a program beside it."""
    program = f"DIRECTORY, IS_REMOTE = {str(folder / 'checkpoints')!r}, {is_remote}\n{WANDB_ATTEMPT}"
    (folder / "tmp").mkdir(exist_ok=True)
    environment = {**os.environ, "WANDB_MODE": "offline", "HOME": str(folder), "TMPDIR": str(folder / "tmp")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_all_attempts_are_one_run_of_wandb(tmp_path: Path):
    (tmp_path / "checkpoints").mkdir()
    for _ in range(2):
        attempt_with_wandb(tmp_path)
    attempts = list((tmp_path / "checkpoints" / "wandb").glob("offline-run-*"))
    assert len(attempts) == 2
    (run,) = {folder.name.rpartition("-")[2] for folder in attempts}
    assert run == run_id(str(tmp_path / "checkpoints"))
    assert [wandb_files.steps(whole_run(folder)) for folder in attempts] == [[1, 1]] * 2


def test_offline_run_of_wandb_ends_up_in_the_bucket(tmp_path: Path):
    attempt_with_wandb(tmp_path, is_remote=True)
    (here,) = (tmp_path / "tmp").glob("wandb-*/wandb/offline-run-*")
    there = tmp_path / "checkpoints" / "wandb" / here.name
    assert files(there) == files(here)
    assert wandb_files.config(whole_run(there))["steps"] == 9


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def whole_run(folder: Path) -> bytes:
    (file,) = folder.glob("run-*.wandb")
    return file.read_bytes()
