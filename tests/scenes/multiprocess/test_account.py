"""What a run on a bucket leaves for people: evaluations, samples, trackers and the account of its time.

Over a loss that is not finite, for which it goes back, and over a kill.
"""

import json
import re
import signal
import socket
import time

import numpy as np
import pytest

from tests.harness import processes
from tests.multiprocess.attempts import ENDLESS, committed, trained
from tests.multiprocess.poisoned_trainer import EVERY, HELD_AFTER, evaluations, held_step
from tests.trainer.telemetry import event_files, wandb_files
from tools.localcluster.waiting import wait_for
from tpujob_trainer.telemetry import goodput, tracker_files

pytestmark = pytest.mark.processes

ONLY_ON_PROCESS_0 = """
import os, sys
if os.environ.get("TPUJOB_HOST") != "0":
    for package in ("wandb", "tensorboardX"):
        sys.modules[package] = None  # importing it fails
"""

CLOCK_SECONDS = 0.1
"""More than what is rounded, and than the kernel's grain of the start of a process."""

POISONED = ("-m", "tests.multiprocess.poisoned_trainer")
PREFIX = "account/"


class Scenario:
    """Two processes, of which process 0 is killed; then one process with as many devices, which is asked to stop."""

    def __init__(self, folder, bucket):
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        """What is on the bucket beside the steps, once all is over."""
        self.bucket = bucket
        self.went_back = {}
        """The report of process 0 after it went back."""
        self.attempts = []
        self.codes = []
        self.began = time.time()
        self.answered = 0.0
        """When the first process was there for sure, in Unix seconds."""
        self.report = {}
        """Of the second attempt's process 0, after it has trained."""

    def start(self, config, *, count, devices):
        number = len(self.attempts)
        run = processes.start(
            self.folder / f"attempt-{number}",
            processes=count,
            devices=devices,
            config=config,
            checkpoint_dir=f"gs://{self.bucket.name}/{PREFIX.rstrip('/')}",
            attempt=number,
            program=POISONED,
            extra={
                **self.bucket.environment,
                "PYTHONPATH": str(self.folder / "site"),
                "WANDB_MODE": "offline",
                "TMPDIR": str(self.folder / "tmp"),  # where W&B keeps its runs
                **{name.upper(): str(self.file(name, number)) for name in ("poison", "hold", "evaluations")},
            },
        )
        self.attempts.append(run)
        return run

    def file(self, name, attempt):
        return self.folder / f"{name}-{attempt}"

    def hold(self, run):
        """Has the processes of attempt 0 stand still, and waits until all that they have done is told."""
        self.file("hold", 0).touch()
        held = run.wait_for_report("a hold", lambda report: report["step"] == held_step(self.file("hold", 0)))
        step = held["step"]

        def is_told():
            return (
                json.loads(self.bucket.read(f"{PREFIX}{goodput.FILE}"))["last"]["step"] == step
                and self.last_sampled_step() == step - HELD_AFTER
                and self.last_step_of_tensorboard() >= step - HELD_AFTER
                and len(self.runs_of_wandb()) == 1
            )

        wait_for(
            "the account and the samples",
            is_told,
            timeout_seconds=processes.PATIENCE_SECONDS,
            explain=run.explain_lateness,
        )

    def last_sampled_step(self):
        file = f"{PREFIX}samples.jsonl"
        return json.loads(self.bucket.read(file).splitlines()[-1])["step"] if self.bucket.objects(file) else None

    def last_step_of_tensorboard(self):
        """On the bucket, where the file is copied with each sample; each tracker has a thread of its own."""
        files = sorted(self.bucket.objects(f"{PREFIX}tensorboard/"))
        return event_files.parse(self.bucket.read(files[-1]))[-1].step if files else 0

    def runs_of_wandb(self):
        return list((self.folder / "tmp").glob("wandb-*/wandb/offline-run-*"))

    def account(self):
        """The last one that was written, seconds by category, and when."""
        found = json.loads((self.checkpoints / goodput.FILE).read_text())
        of_last = goodput.of_attempt(found["last"], is_over=False)
        return {name: found["seconds"][name] + seconds for name, seconds in of_last.items()}, found["written"]

    def fetch(self):
        for name in self.bucket.objects(PREFIX):
            path = self.checkpoints / name.removeprefix(PREFIX)
            if not name.endswith("/") and not name.startswith((f"{PREFIX}steps/", f"{PREFIX}compile-cache/")):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.bucket.read(name))

    def scalars(self, name):
        return event_files.scalars(self.checkpoints / "tensorboard", name)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory, trainer_block, corpus, bucket):
    folder = tmp_path_factory.mktemp("account")
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(
        ONLY_ON_PROCESS_0 + (processes.AT_START / "sitecustomize.py").read_text()
    )
    (folder / "tmp").mkdir()
    config = trainer_block(
        steps=ENDLESS,
        every_steps=EVERY,
        evaluation={"everySteps": EVERY, "batches": 3, "data": {"path": f"{corpus}/*.parquet"}},
        sample={"prompt": "0", "tokens": 4, "everySteps": EVERY, "temperature": 0},
        trackers={"tensorboard": {}, "wandb": {"project": "tests"}},
        nonFinite={"maxSkips": 1},
    )
    scenario = Scenario(folder, bucket)
    with scenario.start(config, count=2, devices=2) as run:
        run.wait_for_report("an answer", lambda report: True)
        scenario.answered = time.time()
        # Two commits: the suspects may reach back to the step of the last one.
        run.wait_for_report("commits", committed(2 * EVERY))
        scenario.file("poison", 0).touch()
        scenario.went_back = run.wait_for_report("a step back", lambda report: report["lost_steps"] > 0)
        run.wait_for_report("commits", committed(scenario.went_back["restored_from"] + EVERY + 1))
        scenario.hold(run)
        processes.kill(run[0])
        scenario.codes.append(run.wait())
    with scenario.start(config, count=1, devices=4) as run:
        first = run.wait_for_report("a restore", trained(EVERY + 1))["restored_from"]
        run.wait_for_report("more steps", trained(first + EVERY + 2))
        scenario.report = run.wait_for_report("an account", lambda report: report["goodput"]["step"] > 0)
        wait_for(
            "a run of W&B",
            lambda: len(scenario.runs_of_wandb()) == 2,
            timeout_seconds=processes.PATIENCE_SECONDS,
            explain=run.explain_lateness,
        )
        processes.kill(run[0], signal.SIGTERM)
        scenario.codes.append(run.wait())
    scenario.fetch()
    return scenario


def test_killed_run_goes_on_and_stops(scenario):
    assert scenario.codes[0][0] == 137
    assert scenario.codes[1] == [75], scenario.attempts[1].explain()


def test_run_goes_back_and_on_where_the_loss_is_not_finite(scenario):
    (back,) = json.loads((scenario.checkpoints / "nonfinite.json").read_text())["rollbacks"]
    first, second = back["steps"]
    assert second == first + 1
    restored = scenario.went_back["restored_from"]
    assert restored < first - 1
    assert restored % EVERY == 0
    # The suspects, and what both processes say and do.
    assert back["batches"] == [first - 1, first, second]
    for member in scenario.attempts[0].members:
        (line,) = re.findall(r"went back to step (\d+); batches ([0-9, ]+) are left out", member.log)
        assert line == (str(restored), ", ".join(map(str, back["batches"])))
    assert scenario.report["restored_from"] > restored + EVERY
    assert scenario.went_back["lost_steps"] == second - restored


def test_evaluation_is_the_same_at_one_and_two_processes(scenario):
    restored = scenario.report["restored_from"]
    # The killed attempt evaluated this very state, and the next one did again.
    killed, again = (dict(evaluations(scenario.file("evaluations", attempt)))[restored] for attempt in (0, 1))
    # The sums over devices are of float32, and between processes they are added in another order.
    assert killed == pytest.approx(again, rel=1e-6)
    *_, (_, shown) = [found for found in scenario.scalars("evaluation/loss") if found[0] == restored]
    assert shown == np.float32(again)


def test_samples_have_one_line_for_each_step(scenario):
    lines = [json.loads(line) for line in (scenario.checkpoints / "samples.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines]
    assert steps == sorted(set(steps))
    assert steps[: len(steps) - 1] == list(range(EVERY, EVERY * len(steps), EVERY))
    assert all(line["text"].startswith("0") for line in lines)


def test_metrics_are_one_table_over_the_step_back_and_the_kill(scenario):
    rows = tracker_files.parse_metrics((scenario.checkpoints / tracker_files.METRICS).read_bytes())
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps))
    assert steps[-1] > scenario.report["restored_from"]
    losses = {row["step"]: row["train/loss"] for row in rows if "train/loss" in row}
    # TensorBoard has steps of both attempts; of one that was done twice, the second time counts.
    told = dict(scenario.scalars("train/loss"))
    assert losses
    assert {step: told[step] for step in losses} == {step: np.float32(loss) for step, loss in losses.items()}


def test_both_attempts_are_one_run_of_wandb(scenario):
    runs = scenario.runs_of_wandb()
    assert len(runs) == 2
    (run_id,) = {folder.name.rpartition("-")[2] for folder in runs}
    assert json.loads((scenario.checkpoints / "wandb.json").read_text()) == {"id": run_id}


def test_run_of_wandb_says_what_ran_where(scenario):
    # Of the attempt that ended in order; the other was killed.
    (run,) = (scenario.checkpoints / "wandb").glob("offline-run-*/run-*.wandb")
    config = wandb_files.config(run.read_bytes())
    assert config["model"]["layers"] >= 1
    assert config["batchSize"] > 0
    assert config["numParameters"] > 0
    assert (config["numDevices"], config["hosts"]) == (4, [socket.gethostname()])


def test_trackers_are_process_0s_alone(scenario):
    # Process 1 cannot import them at all, see ONLY_ON_PROCESS_0.
    assert scenario.attempts[0][1].log.count("tracker") == 0
    assert scenario.scalars("train/loss")


def test_every_second_since_the_start_is_accounted_for(scenario):
    account = scenario.report["goodput"]
    assert account["lost_steps"] > 0, "steps after the last commit of the attempt that was killed"
    for category in ("start", "compile", "step", "evaluation", "checkpoint", "between_attempts", "restore"):
        assert account[category] > 0, category
    assert 0 < scenario.report["goodput_fraction"] < 1
    # All that were spent when it was written lead back to the start of the first process.
    seconds, written = scenario.account()
    assert scenario.began - CLOCK_SECONDS < written - sum(seconds.values()) < scenario.answered
