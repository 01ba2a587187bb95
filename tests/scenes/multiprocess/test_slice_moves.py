"""Two slices, then one, then two again, as a job with minSlices goes: the batches of a run that nothing happens to."""

import json
import signal

import numpy as np
import pytest
import tensorstore

from tests.harness import processes
from tests.multiprocess.attempts import ENDLESS, committed
from tpujob_trainer import data

pytestmark = [pytest.mark.processes]

EVERY = 5
LANES = 4
DEVICES = 2
"""Of each slice of one host: the batch of eight rows is divided over four devices, two, and four."""
LIMIT_SECONDS = 240


class Incarnations:
    """One run as its JobSets make it, and where each of them went on."""

    def __init__(self, folder, config):
        self.folder, self.config = folder, config
        self.runs: list[processes.Run] = []
        self.restored: list[int] = []
        self.codes: list[list[int]] = []
        self.step = 0

    def start(self, slices, *, steps=ENDLESS, checkpoints="checkpoints", devices=DEVICES):
        number = len(self.runs) + 1
        run = processes.start(
            self.folder / f"incarnation-{number}",
            processes=slices,
            slices=slices,
            devices=devices,
            config={**self.config, "steps": steps},
            checkpoint_dir=self.folder / checkpoints,
            startup_seconds=120,
            grace_seconds=120,
            extra={"TPUJOB_INCARNATION": str(number)},
        )
        self.runs.append(run)
        return run

    def train_on(self, run):
        """Returns the last committed step, once a step was committed after the one that was restored."""
        began = self.restored[-1]
        report = run.wait_for_report("a later commit", committed(began + EVERY), limit_seconds=LIMIT_SECONDS)
        return report["committed_step"]

    def resume(self, run):
        report = run.wait_for_report("a restore", lambda found: found["restored_from"], limit_seconds=LIMIT_SECONDS)
        self.restored.append(report["restored_from"])

    def endings(self):
        """What process 0 left of each, the oldest first."""
        return [
            json.loads(path.read_text()) for path in sorted((self.folder / "checkpoints" / "attempts").glob("*.json"))
        ]

    def end(self, run, which, number):
        """Ends processes, and keeps how all ended: the others notice, or were asked as well."""
        for index in which:
            processes.kill(run[index], number)
        self.codes.append(run.wait(limit_seconds=LIMIT_SECONDS))


def data_state(checkpoints, step):
    """The data position in a checkpoint, read without Orbax."""
    state = checkpoints / "steps" / str(step) / "state"
    spec = {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": f"file://{state}/", "path": "data/"}}
    return np.asarray(tensorstore.open(spec).result().read().result())


@pytest.fixture(scope="module")
def story(tmp_path_factory, trainer_block):
    """A slice is lost; the other goes on; it is asked to stop, so that both go on."""
    block = trainer_block(
        steps=ENDLESS, every_steps=EVERY, optimizer={"warmupSteps": 0, "finalLearningRateFraction": 1}
    )
    block["data"]["lanes"] = LANES
    made = Incarnations(tmp_path_factory.mktemp("slices"), block)
    with made.start(slices=2) as run:
        run.wait_for_report("a commit", committed(EVERY), limit_seconds=LIMIT_SECONDS)
        made.end(run, [1], signal.SIGKILL)
    with made.start(slices=1) as run:
        made.resume(run)
        made.train_on(run)
        made.end(run, [0], signal.SIGTERM)
    with made.start(slices=2) as run:
        made.resume(run)
        made.train_on(run)
        made.end(run, [0, 1], signal.SIGTERM)
    made.step = made.endings()[-1]["committed_step"]
    with made.start(slices=1, devices=1, steps=made.step, checkpoints="undisturbed") as run:
        assert run.wait(limit_seconds=LIMIT_SECONDS) == [0], run.explain()
    return made


def test_slices_were_lost_and_came_back(story):
    lost, stopped, stopped_again = story.codes
    assert lost[1] == 137
    assert (stopped, stopped_again) == ([75], [75, 75])
    assert 0 < story.restored[0] < story.restored[1] < story.step
    meshes = [run[0].log.partition("; mesh ")[2].partition(" (")[0] for run in story.runs[:3]]
    assert meshes == ["{'slice': 2, 'fsdp': 2}", "{'fsdp': 2}", "{'slice': 2, 'fsdp': 2}"]


def test_each_number_of_slices_makes_the_same_batches(story):
    moved, undisturbed = (data_state(story.folder / name, story.step) for name in ("checkpoints", "undisturbed"))

    np.testing.assert_array_equal(moved, undisturbed)
    assert data.batches_digest(moved) == data.batches_digest(undisturbed)
    assert moved[:, data.STATE_COLUMNS.index("batches")].tolist() == [story.step] * LANES


def test_each_change_goes_on_from_the_batches_that_were_saved(story):
    for run, step in zip(story.runs[1:3], story.restored, strict=True):
        assert f"Step {step} goes on from the batches it was saved after: digest=" in run[0].log


def test_what_is_saved_on_the_way_to_more_slices_is_not_lost(story):
    """The growth itself makes a checkpoint, and the larger run starts there."""
    smaller = story.endings()[1]
    assert (smaller["exit_code"], smaller["committed_step"]) == (75, story.restored[1])
