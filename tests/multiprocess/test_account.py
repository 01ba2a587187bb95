"""What a run on a bucket leaves for people: evaluations, samples, trackers and the account of its time.

Over a loss that is not finite, for which it goes back, and over a kill.
"""

import json
import re
import signal
import time

import pytest

from tests.multiprocess import processes
from tests.multiprocess.attempts import committed, trained
from tests.trainer.telemetry.event_files import scalars
from tools.localcluster.waiting import wait_for

pytestmark = pytest.mark.processes

ENDLESS = 100_000
EVERY = 5
ONLY_ON_PROCESS_0 = """
import os, sys
if os.environ.get("TPUJOB_HOST") != "0":
    for package in ("wandb", "tensorboardX"):
        sys.modules[package] = None  # importing it fails
"""


POISONED = ("-m", "tests.multiprocess.poisoned_trainer")
PREFIX = "account/"


class Story:
    """Two processes, of which process 0 is killed; then one process with as many devices, which is asked to stop."""

    def __init__(self, folder, bucket):
        self.checkpoints = folder / "checkpoints"
        """What is on the bucket beside the steps, once all is over."""
        self.bucket = bucket
        self.went_back = {}
        """The report of process 0 after it went back."""
        self.attempts = []
        self.codes = []
        self.began = time.time()
        self.seconds = 0.0
        """From the first attempt's begin until that report."""
        self.report = {}
        """Of the second attempt's process 0, after it has trained."""

    def has_unsaved_steps(self):
        last = json.loads(self.bucket.read(f"{PREFIX}goodput.json"))["last"]
        return last["step"] > (last["committed_step"] or 0) > 0

    def fetch(self):
        for name in self.bucket.objects(PREFIX):
            path = self.checkpoints / name.removeprefix(PREFIX)
            if not name.endswith("/") and not name.startswith((f"{PREFIX}steps/", f"{PREFIX}compile-cache/")):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.bucket.read(name))

    def scalars(self, name):
        return scalars(self.checkpoints / "tensorboard", name)


@pytest.fixture(scope="module")
def story(tmp_path_factory, trainer_block, corpus, bucket):
    folder = tmp_path_factory.mktemp("account")
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(
        ONLY_ON_PROCESS_0 + (processes.AT_START / "sitecustomize.py").read_text()
    )
    (folder / "tmp").mkdir()
    story = Story(folder, bucket)
    config = trainer_block(
        steps=ENDLESS,
        every_steps=EVERY,
        evaluation={"everySteps": EVERY, "batches": 3, "data": {"path": f"{corpus}/*.parquet"}},
        sample={"prompt": "0", "tokens": 4, "everySteps": EVERY, "temperature": 0},
        trackers={"tensorboard": {}, "wandb": {"project": "tests"}},
        nonFinite={"maxSkips": 1},
    )
    for count, devices in ((2, 2), (1, 4)):
        run = processes.start(
            folder / f"attempt-{len(story.attempts)}",
            processes=count,
            devices=devices,
            config=config,
            checkpoint_dir=f"gs://{bucket.name}/{PREFIX.rstrip('/')}",
            attempt=len(story.attempts),
            startup_seconds=120,
            program=POISONED,
            extra={
                **bucket.environment,
                "PYTHONPATH": str(folder / "site"),
                "WANDB_MODE": "offline",
                "TMPDIR": str(folder / "tmp"),  # where W&B keeps its runs
                "POISON": str(folder / f"poison-{count}"),
            },
        )
        story.attempts.append(run)
        with run:
            if count == 2:
                run.wait_for_report("commits", committed(EVERY), limit_seconds=240)
                (folder / f"poison-{count}").touch()
                story.went_back = run.wait_for_report("a step back", lambda report: report["restored_from"] is not None)
                run.wait_for_report("commits", committed(story.went_back["restored_from"] + EVERY + 1))
                wait_for("an account with steps that are not saved", story.has_unsaved_steps, explain=run.explain)
                processes.kill(run[0])
                story.codes.append(run.wait(limit_seconds=60))
            else:
                first = run.wait_for_report("a restore", trained(EVERY + 1), limit_seconds=240)["restored_from"]
                run.wait_for_report("more steps", trained(first + EVERY + 2))
                story.report = run.wait_for_report("an account", lambda report: report["goodput"]["step"] > 0)
                story.seconds = time.time() - story.began
                processes.kill(run[0], signal.SIGTERM)
                story.codes.append(run.wait(limit_seconds=60))
    story.fetch()
    return story


def test_killed_run_goes_on_and_stops(story):
    assert story.codes[0][0] == 137
    assert story.codes[1] == [75], story.attempts[1].explain()


def test_run_goes_back_and_on_where_the_loss_is_not_finite(story):
    (back,) = json.loads((story.checkpoints / "nonfinite.json").read_text())["rollbacks"]
    first, second = back["steps"]
    assert second == first + 1
    restored = story.went_back["restored_from"]
    assert restored < first - 1
    assert restored % EVERY == 0
    # The suspects, and what both processes say and do.
    assert back["batches"] == [first - 1, first, second]
    for member in story.attempts[0].members:
        (line,) = re.findall(r"went back to step (\d+); batches ([0-9, ]+) are left out", member.log)
        assert line == (str(restored), ", ".join(map(str, back["batches"])))
    assert story.report["restored_from"] > restored + EVERY
    assert story.went_back["lost_steps"] == second - restored


def test_evaluation_is_the_same_at_one_and_two_processes(story):
    restored = story.report["restored_from"]
    found = [loss for step, loss in story.scalars("evaluation/loss") if step == restored]
    # The killed attempt evaluated this very state, and the next one did again.
    if len(found) == 1:  # it was killed before that reached the bucket
        (line,) = [
            line for line in story.attempts[0][0].log.splitlines() if f"Step {restored}: evaluation loss" in line
        ]
        assert f"evaluation loss {found[0]:.4f}" in line
    else:
        assert len(found) == 2
        assert found[0] == found[1], "float32, to the last bit"


def test_samples_have_one_line_for_each_step(story):
    lines = [json.loads(line) for line in (story.checkpoints / "samples.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines]
    assert steps == sorted(set(steps))
    assert steps[: len(steps) - 1] == list(range(EVERY, EVERY * len(steps), EVERY))
    assert all(line["text"].startswith("0") for line in lines)


def test_both_attempts_are_one_run_of_wandb(story):
    runs = list((story.checkpoints.parent / "tmp").glob("wandb-*/wandb/offline-run-*"))
    assert len(runs) == 2
    (run_id,) = {folder.name.rpartition("-")[2] for folder in runs}
    assert json.loads((story.checkpoints / "wandb.json").read_text()) == {"id": run_id}


def test_trackers_are_process_0s_alone(story):
    # Process 1 cannot import them at all, see ONLY_ON_PROCESS_0.
    assert story.attempts[0][1].log.count("tracker") == 0
    assert story.scalars("train/loss")


def test_every_second_since_the_begin_is_accounted_for(story):
    account = story.report["goodput"]
    assert account["lost_steps"] > 0, "steps after the last commit of the attempt that was killed"
    for category in ("start", "compile", "step", "evaluation", "checkpoint", "between_attempts", "restore"):
        assert account[category] > 0, category
    # Written every 10 s; the account in the report is as old at most.
    assert sum(account.values()) == pytest.approx(story.seconds, abs=15)
    assert 0 < story.report["goodput_fraction"] < 1
