"""The example loops as real processes: killed, stopped, gone on with on another number, the same batches and losses."""

import io
import json
import os
import signal
import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.harness.processes import Run, kill, start
from tpujob.commands.from_folder import folder_to_parquet
from tpujob_contract import ExitCode
from tpujob_trainer.checkpoint import layout

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[2] / "examples" / "own-loop"
STEPS = 40
SAVED_EVERY = 10


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("text")
    folder_to_parquet(Path(os.__file__).parent / "json", folder / "text", include=("*.py",))
    return str(folder / "text" / "*.parquet")


class Loop:
    """An example, run again and again over one checkpoint directory."""

    def __init__(self, folder: Path, example: str, text: str) -> None:
        self.folder = folder
        self.example = example
        self.text = text
        self.attempts = 0

    def start(self, processes: int, *, steps: int = STEPS) -> Run:
        self.attempts += 1
        return start(
            self.folder / f"attempt-{self.attempts}",
            processes=processes,
            devices=4 // processes,
            config={},
            checkpoint_dir=self.folder / "checkpoints",
            attempt=self.attempts,
            program=(str(EXAMPLES / self.example),),
            # As in a pod whose job has a command and no trainer block.
            extra={"TEXT": self.text, "IMAGES": self.text, "STEPS": str(steps), "TPUJOB_CONFIG": ""},
        )

    def committed(self) -> list[int]:
        """Steps of the checkpoints that are there, newest first."""
        return layout.committed(str(self.folder / "checkpoints"))


def losses(run: Run) -> dict[int, float]:
    """What the example printed."""
    found = (line.split() for line in run[0].log.splitlines() if line.startswith("step "))
    return {int(words[1].rstrip(":")): float(words[3]) for words in found}


def test_killed_and_resumed_on_other_processes_gives_the_same_losses(tmp_path: Path, text: str) -> None:
    undisturbed = Loop(tmp_path / "undisturbed", "train.py", text)
    run = undisturbed.start(1)
    assert run.wait() == [0], run.explain()
    expected = losses(run)
    assert sorted(expected) == [10, 20, 30, 40]
    assert expected[40] < expected[10]

    disturbed = Loop(tmp_path / "disturbed", "train.py", text)
    run = disturbed.start(2, steps=100_000)
    run.wait_for_report("a commit", lambda report: (report["committed_step"] or 0) >= SAVED_EVERY)
    kill(run[1], signal.SIGKILL)
    assert all(code not in (0, ExitCode.STOPPED) for code in run.wait()), run.explain()
    last = disturbed.committed()[0]
    seen = losses(run)

    run = disturbed.start(4, steps=max(last + SAVED_EVERY, STEPS))
    assert run.wait() == [0] * 4, run.explain()
    assert f"Restored the checkpoint of step {last}" in run[0].log
    assert "process 3" in run[3].log.lower()
    seen |= losses(run)
    for step, loss in expected.items():
        assert seen[step] == pytest.approx(loss, abs=2e-4), step


def test_asked_to_stop_all_leave_at_one_step_with_one_checkpoint(tmp_path: Path, text: str) -> None:
    loop = Loop(tmp_path, "train_flax.py", text)
    run = loop.start(2, steps=100_000)
    run.wait_for_report("steps", lambda report: report["step"] >= 3 and report["steps"] == 100_000)
    kill(run[1], signal.SIGTERM)
    assert run.wait() == [ExitCode.STOPPED] * 2, run.explain()
    (stopped,) = {json.loads(_final(member.termination_message))["step"] for member in run.members[:1]}
    assert loop.committed()[0] == stopped
    run = loop.start(1, steps=stopped + 2)
    assert run.wait() == [0], run.explain()
    assert f"Restored the checkpoint of step {stopped}" in run[0].log
    assert loop.committed()[0] == stopped + 2


@pytest.fixture
def images(tmp_path: Path) -> str:
    """Tars of small images, of which those of a class are bright in one quarter, as their captions say."""
    random = np.random.default_rng(0)
    for tar in range(6):
        with tarfile.open(tmp_path / f"{tar}.tar", "w") as file:
            for number in range(5 + tar):
                label = int(random.integers(4))
                pixels = random.integers(0, 64, (8, 8), np.uint8)
                pixels[4 * (label // 2) :, 4 * (label % 2) :][:4, :4] += 128
                stored = io.BytesIO()
                np.save(stored, pixels)
                for field, content in (
                    ("npy", stored.getvalue()),
                    ("cls", str(label).encode()),
                    ("txt", f"bright in {label}".encode()),
                ):
                    member = tarfile.TarInfo(f"{tar}/{number:03d}.{field}")
                    member.size = len(content)
                    file.addfile(member, io.BytesIO(content))
    return str(tmp_path / "*.tar")


@pytest.mark.parametrize("example", ["train_images.py", "train_captions.py"])
def test_images_are_the_same_on_another_number_of_processes(tmp_path: Path, images: str, example: str) -> None:
    undisturbed = Loop(tmp_path / "undisturbed", example, images).start(1, steps=20)
    assert undisturbed.wait() == [0], undisturbed.explain()
    expected = losses(undisturbed)
    assert sorted(expected) == list(range(1, 21))
    assert expected[20] < expected[1]

    loop = Loop(tmp_path / "resumed", example, images)
    begun = loop.start(2, steps=10)
    assert begun.wait() == [0, 0], begun.explain()
    assert loop.committed()[0] == 10
    resumed = loop.start(1, steps=20)
    assert resumed.wait() == [0], resumed.explain()
    assert "Restored the checkpoint of step 10" in resumed[0].log
    seen = losses(begun) | losses(resumed)
    for step, loss in expected.items():
        assert seen[step] == pytest.approx(loss, abs=2e-4), step


LATE_SIGNAL = """
import os, signal
import numpy as np
from tpujob_sdk import Job, run


def train(job: Job) -> None:
    checkpoints = job.checkpoints()
    step, state = 0, job.replicate(np.zeros((1024, 1024), np.float32))
    while not job.stop_requested():
        step += 1
        job.report(step=step)
        if step == 3 and not job.is_lead:
            os.kill(os.getpid(), signal.SIGTERM)
    checkpoints.save(step, state)
    if job.is_lead:
        os.kill(os.getpid(), signal.SIGTERM)


run(train)
"""
"""The hosts of a job are not asked to stop at once: the lead is here when it has left its loop already."""


def test_host_asked_to_stop_after_its_loop_waits_for_the_last_save(tmp_path: Path, text: str) -> None:
    program = tmp_path / "late_signal.py"
    program.write_text(LATE_SIGNAL)
    loop = Loop(tmp_path, str(program), text)
    run = loop.start(2)
    assert run.wait() == [ExitCode.STOPPED] * 2, run.explain()
    stopped = json.loads(_final(run[0].termination_message))["step"]
    assert loop.committed() == [stopped], run.explain()


def _final(message: str) -> str:
    return message.partition("report: ")[2].splitlines()[0]
